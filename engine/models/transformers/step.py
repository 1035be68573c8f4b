"""TracedDecoder: a decoder of `transformers` behind the step interface of the built-in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from vcc.cache.errors import ModelError
from vcc.engine.models.feed_forward import expert_kernels
from vcc.engine.models.traced_spec import TracedSpec
from vcc.engine.models.transformers.interface import NAME, AttentionCall, handled_by, register
from vcc.engine.models.transformers.model import as_meta, make_model
from vcc.engine.models.transformers.probe import LayerAttention, attention_of
from vcc.engine.ops.choice import OpChoice


class TracedDecoder(nn.Module):
    """Takes one flattened step, as `Decoder` does.

    Args:
        spec: which model.
        dtype: of weights, activations and logits.
        ops: which platform's experts.

    Raises:
        ModelError: the model cannot be made, or it does what no step can.
    """

    def __init__(self, spec: TracedSpec, dtype: torch.dtype, ops: OpChoice | None = None) -> None:
        super().__init__()
        self.spec, self.dtype = spec, dtype
        self.on_gpu = (ops or OpChoice()).platform != "cpu"
        register()
        self.model = make_model(
            spec.architecture,
            spec.config,
            dtype,
            attn_implementation=NAME,
            experts_implementation=NAME,
        )
        # Read for a warning about padding, which a step has not; some configs refuse what they are
        # set. A plain forward keeps it: a classifier looks for the last token that is none.
        object.__setattr__(self.model.config, "pad_token_id", None)
        _check_config(self.model.config, spec)
        self.constants = {f"model.{name}": data for name, data in as_meta(self.model).items()}
        self.attention = attention_of(self.model, spec)
        _check_head(self.model, spec)

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        slot_mapping: Tensor,
        block_table: Tensor,
        seq_lens: Tensor,
        query_start: Tensor,
        logits_index: Tensor,
        kv_caches: Sequence[Tensor],
    ) -> Tensor:
        """One step of B sequences with T tokens in all; arguments and result as of `Decoder`."""
        tables = (block_table, seq_lens, query_start)
        step = _Step(self.attention, tuple(kv_caches), slot_mapping, tables, self.on_gpu)
        pick = self.model.get_output_embeddings().register_forward_pre_hook(
            lambda _, args: (args[0].index_select(1, logits_index), *args[1:])
        )
        try:
            with handled_by(step):
                # Positions are indices of tables in some models, which take int64.
                found = self.model(
                    input_ids=input_ids[None].long(),
                    position_ids=positions[None].long(),
                    use_cache=False,
                )
        finally:
            pick.remove()
        return cast(Tensor, found.logits[0])

    def assign(self, weights: Mapping[str, Tensor]) -> TracedDecoder:
        """Take these tensors as parameters and stored buffers, without a copy; compute the rest.

        Args:
            weights: every parameter and stored buffer by name, in the model's dtype.
        """
        missing, _ = self.load_state_dict(dict(weights), strict=False, assign=True)
        for name, data in self.constants.items():
            if name in weights:
                continue
            owner, _, own = name.rpartition(".")
            setattr(self.get_submodule(owner), own, data)
        named = dict(self.named_parameters())
        if lost := [name for name in missing if name in named and named[name].is_meta]:
            raise ModelError(f"no weights for {lost[0]}", "the bindings do not give them")
        return self.requires_grad_(False)


@dataclass(slots=True)
class _Step:
    """Turns the calls of one forward into operators, layer by layer."""

    layers: tuple[LayerAttention, ...]
    caches: tuple[Tensor, ...]
    slots: Tensor
    tables: tuple[Tensor, Tensor, Tensor]
    on_gpu: bool
    at: int = field(default=0)

    def attend(self, call: AttentionCall) -> Tensor:
        """Write keys and values into the layer's cache and attend to it."""
        layer, cache = self.layers[self.at], self.caches[self.at]
        self.at += 1
        q, k, v = (_rows(x) for x in (call.q, call.k, call.v))
        # Allocated before the KV write, so that no piece of code lies between the two operators.
        out = torch.empty_like(q)
        torch.ops.vcc.kv_write(k, v, cache, self.slots)
        torch.ops.vcc.paged_attention(
            q, cache, *self.tables, out, layer.scale, layer.window, layer.cap
        )
        heads: Tensor = out.unflatten(-1, (layer.heads, layer.head_dim))[None]
        return heads

    def mask(self, function: Any, queries: Any) -> Tensor | None:
        """None: the block table says who sees whom."""
        return None

    def experts(self, layer: Any, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """One operator."""
        ops = expert_kernels(self.on_gpu)
        found: Tensor = ops.moe_experts(
            x.contiguous(),
            layer.gate_up_proj,
            layer.down_proj,
            weights.float().contiguous(),
            ids.to(torch.int32).contiguous(),
        )
        return found


def _rows(x: Tensor) -> Tensor:
    """[1, heads, T, D] -> [T, heads * D], as one block of memory."""
    rows: Tensor = x[0].transpose(0, 1).flatten(-2).contiguous()
    return rows


def _check_config(config: Any, spec: TracedSpec) -> None:
    """Sizes that a step has from config.json, against those of the model."""
    sizes = {
        "vocab_size": (spec.vocab, getattr(config, "vocab_size", None)),
        "max_position_embeddings": (
            spec.max_positions,
            getattr(config, "max_position_embeddings", None),
        ),
    }
    for name, (mine, theirs) in sizes.items():
        if theirs is not None and theirs != mine:
            raise ModelError(
                f"config.json and the model differ in {name}",
                f"the config means {mine}, the model of transformers has {theirs}",
                f"write {name} into config.json",
            )


def _check_head(model: Any, spec: TracedSpec) -> None:
    if not isinstance(model.get_output_embeddings(), nn.Module):
        raise ModelError(
            f"{spec.architecture} has no output head that transformers knows",
            "get_output_embeddings() gives none, so rows cannot be chosen before it",
        )
