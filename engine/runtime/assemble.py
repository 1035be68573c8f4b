"""Assemble a runner: limits, KV caches, memory, dispatcher, over whatever runs the calls."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import torch

from vcc.cache.errors import DeviceError
from vcc.engine.graphs.base import GraphBackend, Sizes
from vcc.engine.graphs.cpu import CpuGraphs
from vcc.engine.graphs.dtypes import DTYPES
from vcc.engine.graphs.program import Program
from vcc.engine.models.architectures import DecoderSpec
from vcc.engine.runtime.adapted import Adapting, nobody
from vcc.engine.runtime.batch import StepLimits
from vcc.engine.runtime.binding import Binder
from vcc.engine.runtime.dispatch import Dispatcher, dispatcher_of
from vcc.engine.runtime.graph_stat import GraphStat
from vcc.engine.runtime.memory import Room, StepMemory
from vcc.engine.runtime.range_step import BLOCKS, SEQS, TOKENS, StepCode, size_kind
from vcc.engine.runtime.ranges import EVERY, RangeProgram
from vcc.engine.runtime.settings import Settings
from vcc.engine.runtime.step import ModelRunner, Parts

KV_SHARE = 4
"""The KV cache takes at most one part in this many of the machine's free memory."""

CACHE_PREFIX = "kv_cache"


def assemble(
    program: Program | Sequence[RangeProgram],
    given: Mapping[str, torch.Tensor],
    pieces: Mapping[str, Any],
    ops: Mapping[str, Any],
    spec: DecoderSpec,
    settings: Settings,
    *,
    segments: GraphBackend | None = None,
    adapters: Adapting = nobody,
) -> ModelRunner:
    """A runner over a program, or over one for each range of tokens.

    Args:
        program: the step.
        given: weights and constants by value name.
        pieces: opened pieces by id.
        ops: splitting ops by qualified name.
        spec: the decoder, for the KV cache's geometry.
        settings: limits and modes.
        segments: makes PIECEWISE graphs of a step that is one operator; None: of pieces.
        adapters: makes those that can be loaded into the code.
    """
    programs = (RangeProgram(*EVERY, program),) if isinstance(program, Program) else program
    first = programs[0].program
    limits = limits_of(spec, settings, first)
    with _enough_memory():
        known, room = {**given, **kv_caches(first, spec, limits)}, Room()
        memories = [
            StepMemory(one.program, known, largest(one.program, limits), room) for one in programs
        ]
    codes = [
        StepCode(one.low, one.high, one.program, memory, Binder(one.program, memory, pieces, ops))
        for one, memory in zip(programs, memories, strict=True)
    ]
    return ModelRunner(
        Parts(
            codes=codes,
            limits=limits,
            dispatcher=_dispatcher(settings, breakable=segments is not None),
            backend=segments or CpuGraphs(),
            stat=GraphStat(),
            ops_as_pieces=segments is not None,
            adapters=adapters,
        )
    )


@contextmanager
def _enough_memory() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, RuntimeError) and "allocate" not in str(error):
            raise
        raise DeviceError(
            "the buffers of a step do not fit into memory",
            str(error).strip().splitlines()[0][:200],
            "build for less: --max-model-len, --max-num-seqs, --max-num-batched-tokens",
        ) from error


def limits_of(spec: DecoderSpec, settings: Settings, program: Program) -> StepLimits:
    """What a step may hold, with as many KV blocks as are wanted and affordable."""
    itemsize = _cache_dtype(program).itemsize
    block_bytes = spec.layers * prod(spec.kv_shape(1, settings.block_size)) * itemsize
    return StepLimits(
        max_tokens=settings.model.max_num_batched_tokens or 1,
        max_seqs=settings.max_seqs,
        block_size=settings.block_size,
        num_blocks=settings.num_blocks(block_bytes, _free_memory() // KV_SHARE),
        max_blocks_per_seq=settings.max_blocks_per_seq,
        max_model_len=settings.model.max_model_len or 1,
        vocab=spec.vocab,
        max_loras=settings.model.max_loras or 0,
    )


def kv_caches(program: Program, spec: DecoderSpec, limits: StepLimits) -> dict[str, torch.Tensor]:
    """A zeroed cache tensor per layer, by the name of the program's input."""
    shape = spec.kv_shape(limits.num_blocks, limits.block_size)
    names = [v.name for v in program.of_role("input") if v.name.startswith(CACHE_PREFIX)]
    # Zeroed pages cost nothing until they are written.
    return {name: torch.zeros(shape, dtype=_cache_dtype(program)) for name in names}


def largest(program: Program, limits: StepLimits) -> Sizes:
    """The largest value of every size of the program under these limits."""
    kinds = {TOKENS: limits.max_tokens, SEQS: limits.max_seqs, BLOCKS: limits.num_blocks}
    return {symbol.name: kinds[size_kind(symbol)] for symbol in program.symbols}


def _cache_dtype(program: Program) -> torch.dtype:
    first = next(v for v in program.of_role("input") if v.name.startswith(CACHE_PREFIX))
    return DTYPES[first.dtype]


def _dispatcher(settings: Settings, *, breakable: bool) -> Dispatcher:
    return dispatcher_of(
        settings.compilation,
        max_seqs=settings.max_seqs,
        lora_cases=settings.lora_cases,
        breakable=breakable,
    )


def _free_memory() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
