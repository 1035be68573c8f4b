"""EagerLoader: the decoder itself as the step, for modes that store no code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from vcc.cache.errors import IntegrityError
from vcc.engine.config.custom_ops import decided
from vcc.engine.config.modes import GraphMode, Platform
from vcc.engine.graphs.dtypes import DTYPES, NAMES
from vcc.engine.graphs.program import VERSION, Call, Element, Program, Symbol, Value
from vcc.engine.graphs.segments import EagerSegments
from vcc.engine.models.architectures import DecoderSpec
from vcc.engine.models.decoder import Decoder, empty_decoder
from vcc.engine.models.lora.module import empty_adapted
from vcc.engine.models.lora.spec import lora_of
from vcc.engine.ops.choice import OpChoice, choice_of
from vcc.engine.runtime.adapted import adapting
from vcc.engine.runtime.assemble import assemble
from vcc.engine.runtime.settings import Boot, Settings
from vcc.engine.runtime.step import ModelRunner
from vcc.engine.runtime.stock import stock_compiled
from vcc.engine.runtime.torch_loader import load_operators, parameters

STEP = "vcc::eager_step"

INPUTS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("input_ids", ("T",)),
    ("positions", ("T",)),
    ("slot_mapping", ("T",)),
    ("block_table", ("B", "N")),
    ("seq_lens", ("B",)),
    ("query_start", (["+", "B", 1],)),
    ("logits_index", ("B",)),
)
"""The step interface: names and sizes; N is a number."""

LORA_INPUTS = (*INPUTS, ("lora_slot", ("T",)))
"""That of a step with adapters."""


def load_eager(boot: Boot) -> ModelRunner:
    """A runner that calls the decoder."""
    return _load(boot, lambda module: module)


def load_stock(boot: Boot) -> ModelRunner:
    """A runner that calls `torch.compile` of the decoder; it compiles at the first step."""
    boot.events.note("stock torch.compile compiles in this process, nothing of it is stored")
    boot.counters.add("compiles")
    return _load(boot, lambda module: stock_compiled(module, boot.settings.compilation))


def _load(boot: Boot, wrap: Callable[[Decoder], Any]) -> ModelRunner:
    spec = boot.source.spec
    with boot.ledger.phase("weights"):
        load_operators(boot)
        module = _decoder(boot, spec)
    program = eager_program(spec, boot.settings, NAMES[module.dtype])
    step, count = torch.no_grad()(wrap(module)), len(_inputs(boot.settings))

    def run(*args: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(step(*args[:count], list(args[count:])))

    config = boot.settings.compilation
    segments = None
    if config.cuda_graph_mode is not None and config.cuda_graph_mode.uses(GraphMode.PIECEWISE):
        segments = EagerSegments(config.splitting_ops or ())
    adapters = adapting(boot, dict(module.named_parameters()))
    return assemble(
        *(program, {}, {}, {STEP: run}, spec, boot.settings), segments=segments, adapters=adapters
    )


def _inputs(settings: Settings) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    return LORA_INPUTS if settings.model.enable_lora else INPUTS


def _decoder(boot: Boot, spec: DecoderSpec) -> Decoder:
    dtype = boot.settings.model.dtype
    if dtype is None:
        raise IntegrityError("the manifest has no dtype")
    lora, made = lora_of(boot.settings.model), (spec, DTYPES[dtype.torch_name], _choice(boot))
    module = empty_decoder(*made) if lora is None else empty_adapted(*made, lora)
    return module.assign(parameters(boot))


def _choice(boot: Boot) -> OpChoice:
    """What the artifact's configuration switched on, by what this install has."""
    return choice_of(decided(boot.settings.compilation.custom_ops or ()), Platform.CPU.value)


def eager_program(spec: DecoderSpec, settings: Settings, dtype: Element) -> Program:
    """The step as one call that returns its logits."""
    blocks = settings.max_blocks_per_seq
    inputs = [
        Value(name, "input", "int32", [blocks if size == "N" else size for size in shape], name)
        for name, shape in _inputs(settings)
    ]
    cache = [2, "K", settings.block_size, spec.kv_heads, spec.head_dim]
    stored = NAMES[DTYPES[spec.kv_dtype(dtype)]]
    caches = [
        Value(f"kv_caches_{i}", "input", stored, cache, f"kv_caches_{i}")
        for i in range(spec.layers)
    ]
    logits = Value("logits", "buffer", dtype, ["B", spec.vocab], "logits")
    symbols = [
        Symbol("T", 1, settings.model.max_num_batched_tokens or 1, "input_ids", 0),
        Symbol("B", 1, settings.max_seqs, "block_table", 0),
        Symbol("K", 1, 1 << 24, "kv_caches_0", 1),
    ]
    args: list[Any] = [value.name for value in (*inputs, *caches)]
    call = Call("op", STEP, args, ["logits"], returns=True)
    return Program(VERSION, symbols, [*inputs, *caches, logits], [call], ["logits"])
