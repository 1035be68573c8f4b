"""The recording of a decoder: its parameters, KV cache and step interface. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from vcc.engine.config.modes import GraphMode
from vcc.engine.config.types import CompilationConfig
from vcc.engine.graphs.recorder.plan import Descriptor, Recording, Slot, placed
from vcc.engine.graphs.table.types import Role
from vcc.engine.models.architectures import DecoderSpec
from vcc.engine.models.constants import constants_of
from vcc.engine.models.expressions import Binding, Tied
from vcc.engine.runtime.batch import StepLimits
from vcc.engine.runtime.dispatch import dispatcher_of

INPUTS: Sequence[tuple[str, tuple[str, ...]]] = (
    ("input_ids", ("T",)),
    ("positions", ("T",)),
    ("slot_mapping", ("T",)),
    ("block_table", ("B", "N")),
    ("seq_lens", ("B",)),
    ("query_start", ("B1",)),
    ("logits_index", ("B",)),
)
"""The step interface, all int32; B1 is B + 1."""

LOGITS = "logits"


def decoder_recording(
    spec: DecoderSpec,
    shapes: Mapping[str, tuple[int, ...]],
    bindings: Mapping[str, Binding],
    dtype: str,
    limits: StepLimits,
    config: CompilationConfig,
) -> Recording:
    """What is recorded of a decoder.

    Args:
        spec: the decoder.
        shapes: its parameters' shapes by name.
        bindings: where they come from, for tied ones.
        dtype: element type of weights, cache and logits.
        limits: of a step; the cache has exactly `num_blocks` blocks, which kernels have recorded.
        config: resolved; every graph that it declares is recorded, PIECEWISE ones in parts.
    """
    tied = {name: one.name for name, one in bindings.items() if isinstance(one, Tied)}
    ordered = sorted(shapes, key=lambda name: name in tied)
    weights = (
        Slot(name, Role.WEIGHT, dtype, tuple(shapes[name]), shares=tied.get(name, ""))
        for name in ordered
    )
    constants = (
        Slot(name, Role.CONSTANT, "float32", data.shape)
        for name, data in constants_of(spec).items()
    )
    kv = spec.kv_shape(limits.num_blocks, limits.block_size)
    cache = (
        Slot(f"kv_cache_{index}", Role.CACHE, dtype, tuple(kv)) for index in range(spec.layers)
    )
    broken = broken_of(config, limits.max_seqs)
    return Recording(
        weights=placed(chain(weights, constants)),
        cache=placed(cache),
        io=placed(_io(limits, dtype)),
        descriptors=(*broken, *descriptors_of(config, limits.max_seqs)),
        blocks=limits.num_blocks,
        block_size=limits.block_size,
        broken=broken,
        breaking=tuple(config.splitting_ops or ()) if broken else (),
    )


def descriptors_of(config: CompilationConfig, max_seqs: int) -> tuple[Descriptor, ...]:
    """The full graphs that a configuration declares, the largest first."""
    dispatcher = dispatcher_of(config, max_seqs=max_seqs, breakable=True)
    full = [key for mode, key in dispatcher.capture_list() if mode is GraphMode.FULL]
    return tuple(
        Descriptor(key.tokens, key.reqs or min(key.tokens, max_seqs), key.uniform) for key in full
    )


def broken_of(config: CompilationConfig, max_seqs: int) -> tuple[Descriptor, ...]:
    """The steps whose parts are graphs, the largest first; each holds the most sequences."""
    dispatcher = dispatcher_of(config, max_seqs=max_seqs, breakable=True)
    keys = [key for mode, key in dispatcher.capture_list() if mode is GraphMode.PIECEWISE]
    return tuple(Descriptor(key.tokens, min(key.tokens, max_seqs), False) for key in keys)


def _io(limits: StepLimits, dtype: str) -> list[Slot]:
    sizes = {
        "T": limits.max_tokens,
        "B": limits.max_seqs,
        "B1": limits.max_seqs + 1,
        "N": limits.max_blocks_per_seq,
    }
    found = [
        Slot(name, Role.INPUT, "int32", tuple(sizes[dim] for dim in dims), dims)
        for name, dims in INPUTS
    ]
    return [*found, Slot(LOGITS, Role.OUTPUT, dtype, (limits.max_seqs, limits.vocab), ("B",))]
