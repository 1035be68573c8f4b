"""The built-in decoder: one module, driven by a DecoderSpec, that takes one flattened step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from vcc.engine.config.modes import AttentionSupport
from vcc.engine.models.architectures import DecoderSpec
from vcc.engine.models.constants import constants_of
from vcc.engine.models.feed_forward import feed_forward
from vcc.engine.models.layer_ropes import NO_ROPE
from vcc.engine.models.quant.linear import projection
from vcc.engine.models.traced_spec import TracedSpec
from vcc.engine.ops.choice import OpChoice
from vcc.engine.ops.layers import RMSNorm, RotaryEmbedding


class Step(NamedTuple):
    """What attention needs in every layer of one step.

    Attributes:
        angles: for each rope cos and sin, fp32 [T, R/2], already scaled.
        slot_mapping: int32 [T].
        block_table: int32 [B, N].
        seq_lens: int32 [B].
        query_start: int32 [B + 1].
    """

    angles: tuple[tuple[Tensor, Tensor], ...]
    slot_mapping: Tensor
    block_table: Tensor
    seq_lens: Tensor
    query_start: Tensor


class Embedding(nn.Module):
    """Token embeddings, scaled where the architecture does so."""

    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__()
        self.scale = spec.embed_scale
        self.weight = nn.Parameter(torch.empty(spec.vocab, spec.hidden), requires_grad=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        """input_ids [T] int32 -> [T, hidden]."""
        rows = nn.functional.embedding(input_ids, self.weight)
        return rows if self.scale == 1.0 else rows * self.scale


class Attention(nn.Module):
    """Projections, rope, KV write and paged attention of one layer."""

    own_dtypes = frozenset({"kv_scale"})
    """Parameters that are not in the model's dtype: fp32 scales [2] of keys and of values."""

    def __init__(self, spec: DecoderSpec, index: int, ops: OpChoice) -> None:
        super().__init__()
        self.widths = [spec.q_width, spec.kv_width, spec.kv_width]
        self.head_dim, self.scale = spec.head_dim, spec.scale
        self.window, self.cap = spec.windows[index], spec.attention_cap
        qkv, o, path = sum(self.widths), spec.q_width, f"layers.{index}.attn"
        self.qkv = projection(spec, ops, f"{path}.qkv", spec.hidden, qkv, spec.qkv_bias)
        self.o = projection(spec, ops, f"{path}.o", o, spec.hidden, spec.o_bias)
        self.rope_index = spec.layer_ropes[index]
        self.rope = RotaryEmbedding(spec.head_dim, choice=ops)
        self.q_norm = _norm(spec, ops, spec.head_dim) if spec.qk_norm else None
        self.k_norm = _norm(spec, ops, spec.head_dim) if spec.qk_norm else None
        scaled = spec.kv is not None and spec.kv.scales
        self.kv_scale = nn.Parameter(torch.empty(2), requires_grad=False) if scaled else None

    def forward(self, x: Tensor, step: Step, kv_cache: Tensor) -> Tensor:
        """x [T, hidden] -> [T, hidden]; writes this step's keys and values to kv_cache."""
        q, k, v = self.qkv(x).split(self.widths, dim=-1)
        q, k = self._per_head(self.q_norm, q), self._per_head(self.k_norm, k)
        if self.rope_index != NO_ROPE:
            q, k = self.rope(q, k, *step.angles[self.rope_index])
        # Allocated before the KV write, so that no piece of code lies between the two opaque ops.
        out = torch.empty_like(q)
        scale = () if self.kv_scale is None else (self.kv_scale,)
        torch.ops.vcc.kv_write(k, v, kv_cache, step.slot_mapping, *scale)
        torch.ops.vcc.paged_attention(
            q,
            kv_cache,
            step.block_table,
            step.seq_lens,
            step.query_start,
            out,
            self.scale,
            self.window,
            self.cap,
            *scale,
        )
        return cast(Tensor, self.o(out))

    def _per_head(self, norm: nn.Module | None, x: Tensor) -> Tensor:
        if norm is None:
            return x
        heads: Tensor = norm(x.unflatten(-1, (-1, self.head_dim)))
        return heads.flatten(-2)


class Layer(nn.Module):
    """One decoder layer; the residual is carried beside the branch so that norms can fuse it."""

    def __init__(self, spec: DecoderSpec, index: int, ops: OpChoice) -> None:
        super().__init__()
        self.input_norm = _norm(spec, ops)
        self.attn = Attention(spec, index, ops)
        self.post_attention_norm = _norm(spec, ops)
        self.pre_feedforward_norm = _norm(spec, ops) if spec.sandwich else None
        self.mlp = feed_forward(spec, index, ops)
        self.post_feedforward_norm = _norm(spec, ops) if spec.sandwich else None

    def forward(
        self, x: Tensor, residual: Tensor | None, step: Step, kv_cache: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(branch, residual) [T, hidden] -> the same, one layer on; no residual at the start."""
        x, residual = (self.input_norm(x), x) if residual is None else self.input_norm(x, residual)
        x = self.attn(x, step, kv_cache)
        before_mlp = self.post_attention_norm
        if self.pre_feedforward_norm is not None:
            x, before_mlp = self.post_attention_norm(x), self.pre_feedforward_norm
        x, residual = before_mlp(x, residual)
        x = self.mlp(x)
        if self.post_feedforward_norm is not None:
            x = self.post_feedforward_norm(x)
        return x, cast(Tensor, residual)


class Decoder(nn.Module):
    """A decoder-only language model over paged KV caches.

    Build it under `torch.device("meta")` or `FakeTensorMode` and no weight memory is touched;
    `assign` then gives it real weights without a copy.

    Args:
        spec: sizes and switches.
        dtype: of weights, activations and logits.
        ops: which operator back ends the layers use.
    """

    def __init__(self, spec: DecoderSpec, dtype: torch.dtype, ops: OpChoice | None = None) -> None:
        super().__init__()
        choice = ops or OpChoice()
        self.spec, self.dtype = spec, dtype
        self.embed = Embedding(spec)
        self.layers = nn.ModuleList(Layer(spec, index, choice) for index in range(spec.layers))
        self.norm = _norm(spec, choice)
        self.head = projection(spec, choice, "head", spec.hidden, spec.vocab, bias=False)
        _cast_parameters(self, dtype)
        constants = constants_of(spec)
        self.frequencies = tuple(constants)
        for name, values in constants.items():
            self.register_buffer(name, torch.as_tensor(values), persistent=False)

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
        """One step of B sequences with T tokens in all.

        Args:
            input_ids, positions, slot_mapping: int32 [T]; slot -1 marks a padding row.
            block_table: int32 [B, N], KV blocks of each sequence.
            seq_lens: int32 [B], tokens of each sequence including this step's.
            query_start: int32 [B + 1], first row of each sequence.
            logits_index: int32 [B], the row whose logits are wanted.
            kv_caches: a tensor for each layer, [2, num_blocks, block_size, kv_heads, head_dim], of
                `spec.kv_dtype`.

        Returns:
            Logits [B, vocab] in the model's dtype.
        """
        step = Step(self._angles(positions), slot_mapping, block_table, seq_lens, query_start)
        x, residual = self.embed(input_ids), None
        for layer, kv_cache in zip(self.layers, kv_caches, strict=True):
            x, residual = layer(x, residual, step, kv_cache)
        return self._logits(x, cast(Tensor, residual), logits_index)

    def assign(self, weights: Mapping[str, Tensor]) -> Decoder:
        """Take these tensors as parameters, without a copy, and compute the constants.

        Args:
            weights: every parameter by name, in the model's dtype.
        """
        self.load_state_dict(dict(weights), strict=True, assign=True)
        for name, values in constants_of(self.spec).items():
            setattr(self, name, torch.from_numpy(values))
        return self.requires_grad_(False)

    def _angles(self, positions: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
        found = []
        for name, rope in zip(self.frequencies, self.spec.ropes, strict=True):
            angles = positions.float()[:, None] * getattr(self, name)
            cos, sin = angles.cos(), angles.sin()
            factor = rope.attention
            found.append((cos, sin) if factor == 1.0 else (cos * factor, sin * factor))
        return tuple(found)

    def _logits(self, x: Tensor, residual: Tensor, wanted: Tensor) -> Tensor:
        """Logits of the wanted rows only; the final norm and the head run on nothing else."""
        x, _ = self.norm(x.index_select(0, wanted), residual.index_select(0, wanted))
        return self._capped(self.head(x))

    def _capped(self, logits: Tensor) -> Tensor:
        cap = self.spec.logit_cap
        if not cap:
            return logits
        return (torch.tanh(logits.float() / cap) * cap).to(logits.dtype)


def empty_decoder(spec: DecoderSpec, dtype: torch.dtype, ops: OpChoice | None = None) -> Decoder:
    """A decoder without memory for its weights, which `assign` gives it; arguments as `Decoder`.

    Of a spec that `transformers` defines it is a `TracedDecoder`, which is called in the same way.
    """
    if isinstance(spec, TracedSpec):
        from vcc.engine.models.transformers.step import TracedDecoder  # with transformers

        return cast(Decoder, TracedDecoder(spec, dtype, ops))
    with torch.device("meta"):
        return Decoder(spec, dtype, ops)


def _cast_parameters(model: nn.Module, dtype: torch.dtype) -> None:
    """`model.to(dtype)`, which cannot swap parameters that are fake tensors."""
    for module in model.modules():
        own: frozenset[str] = getattr(module, "own_dtypes", frozenset())
        for name, parameter in tuple(module.named_parameters(recurse=False)):
            if name in own:
                continue
            setattr(module, name, nn.Parameter(parameter.to(dtype), requires_grad=False))


def attention_support(spec: DecoderSpec) -> AttentionSupport:
    """The least of what its layers' attention can take inside one static graph.

    `vcc::paged_attention` takes prefill, decode and mixed batches alike, windowed or not.
    """
    return AttentionSupport.weakest(AttentionSupport.ALWAYS for _ in spec.windows)


def _norm(spec: DecoderSpec, ops: OpChoice, dim: int = 0) -> RMSNorm:
    return RMSNorm(dim or spec.hidden, spec.eps, spec.norm_offset, choice=ops)
