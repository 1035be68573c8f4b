"""The model itself, eagerly in fp32 on the CPU: what a node table is compared with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter

from vcc.engine.config.modes import Dtype
from vcc.engine.config.target import Target
from vcc.engine.config.types import CompilationConfig, DimRange
from vcc.engine.graphs.dtypes import DTYPES
from vcc.engine.graphs.expr import evaluate_all
from vcc.engine.graphs.program import Call, Program
from vcc.engine.models.bindings import bindings_of
from vcc.engine.models.decoder import Decoder, empty_decoder
from vcc.engine.models.decoder_spec import DecoderSpec
from vcc.engine.models.expressions import Tied
from vcc.engine.models.lora.module import empty_adapted
from vcc.engine.models.lora.spec import LoraSpec
from vcc.engine.ops.choice import OpChoice
from vcc.engine.ops.register import load_ops, operator
from vcc.engine.partition.narrow import narrowed
from vcc.engine.partition.split import split
from vcc.engine.passes.apply import apply
from vcc.engine.passes.base import PassContext
from vcc.engine.passes.user import chosen
from vcc.engine.ranged import TOKENS
from vcc.engine.trace.decoder import LORA_LAYOUT, StepShape, decoder_trace
from vcc.engine.trace.trace import trace

Values = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class EagerStep:
    """A decoder with drawn weights, and its step of a range, cut into pieces as a build cuts it.

    Attributes:
        spec: the decoder.
        weights: by parameter name.
        constants: by name.
        program: the step.
        graphs: its pieces by id.
        decoder: the whole model.
    """

    spec: DecoderSpec
    weights: Values
    constants: Values
    program: Program
    graphs: Mapping[str, GraphModule]
    decoder: Decoder

    def logits(self, inputs: Values, caches: Sequence[torch.Tensor]) -> torch.Tensor:
        """The whole model's logits [B, vocab]; caches are written."""
        with torch.no_grad():
            names = [name for name in LORA_LAYOUT if name in inputs]
            found = self.decoder(*(inputs[name] for name in names), list(caches))
            return torch.as_tensor(found)

    def calls(
        self, inputs: Values, caches: Sequence[torch.Tensor]
    ) -> Iterator[tuple[Call, dict[str, torch.Tensor]]]:
        """The step call by call: each with all values by name, after it ran; caches are written."""
        values = {**self._given(), **inputs}
        values |= {f"kv_caches_{index}": cache for index, cache in enumerate(caches)}
        sizes = {s.name: values[s.source].shape[s.dim] for s in self.program.symbols}
        for value in self.program.of_role("buffer"):
            shape, dtype = evaluate_all(value.shape, sizes), DTYPES[value.dtype]
            values[value.name] = torch.full(shape, -1, dtype=dtype)
        for call in self.program.calls:
            with torch.no_grad():
                self._run(call, values)
            yield call, values

    def _given(self) -> dict[str, torch.Tensor]:
        known = {**self.weights, **self.constants}
        named = (*self.program.of_role("weight"), *self.program.of_role("constant"))
        return {value.name: known[value.target] for value in named}

    def _run(self, call: Call, values: dict[str, torch.Tensor]) -> None:
        arguments: list[Any] = [values[a] if isinstance(a, str) else a[0] for a in call.args]
        if call.kind == "piece":
            Interpreter(self.graphs[call.target]).run(*arguments)
            return
        result = operator(call.target)(*arguments)
        if call.returns:
            found = result if isinstance(result, (tuple, list)) else (result,)
            for name, tensor in zip(call.outs, found, strict=True):
                values[name].copy_(tensor)


def eager_steps(
    spec: DecoderSpec,
    shape: StepShape,
    ops: Sequence[str],
    compilation: CompilationConfig,
    target: Target,
    ranges: Sequence[DimRange],
    lora: LoraSpec | None = None,
) -> tuple[EagerStep, ...]:
    """Trace the step on the CPU in fp32, rewrite and cut it for each range, and draw its weights.

    Args:
        spec: the decoder.
        shape: the limits of its step.
        ops: custom ops that are not in plain torch.
        compilation: the resolved configuration: passes and cuts.
        target: what the build is for, which passes may ask.
        ranges: of tokens, each with a table of its own.
        lora: of adapters, whose matrices are drawn like weights.
    """
    load_ops()
    choice = OpChoice(frozenset(ops))
    step = trace(decoder_trace(spec, torch.float32, choice, shape, lora))
    made = (spec, torch.float32, choice)
    decoder = empty_decoder(*made) if lora is None else empty_adapted(*made, lora)
    weights = draw_weights(spec, decoder)
    found = []
    for sizes in ranges:
        tokens = (sizes.min, sizes.max)
        context = PassContext(compilation, target, Dtype.FP32, tokens, ops=choice.enabled)
        own = step if len(ranges) == 1 else narrowed(step, TOKENS, sizes)
        passed = apply(own, chosen(compilation), context)
        pieces = split(passed.traced, tuple(compilation.splitting_ops or ()), ())
        found.append(
            EagerStep(
                spec=spec,
                weights=weights,
                constants=passed.traced.constants,
                program=pieces.program,
                graphs={piece.id: piece.graph for piece in pieces.unique},
                decoder=decoder,
            )
        )
    decoder.assign(weights)
    return tuple(found)


def draw_weights(spec: DecoderSpec, decoder: Decoder) -> dict[str, torch.Tensor]:
    """A value for all that a checkpoint has, drawn by its name: no weight is 1 or 0 by luck.

    Norm weights lie within 0.3 of what does nothing, biases within 0.1 of zero; rows of matrices
    are normal and keep the size of what they are multiplied with.
    """
    tied = {name: one.name for name, one in bindings_of(spec).items() if isinstance(one, Tied)}
    drawn = {
        name: _drawn(name, tuple(one.shape), spec.norm_offset)
        for name, one in decoder.state_dict().items()
        if name not in tied
    }
    return drawn | {name: drawn[other] for name, other in tied.items()}


def _drawn(name: str, shape: tuple[int, ...], offset: float) -> torch.Tensor:
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "little")
    generator = torch.Generator().manual_seed(seed)
    spread = torch.rand(shape, generator=generator) * 2 - 1
    if "norm" in name:
        return spread * 0.3 + (1.0 - offset)
    if len(shape) == 1:
        return spread * 0.1
    scale: float = 1.5 / shape[-1] ** 0.5
    return torch.randn(shape, generator=generator) * scale
