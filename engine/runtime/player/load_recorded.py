"""load_recorded: from a recorded GPU artifact and a checkpoint to a runner, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from vcc.cache.errors import IntegrityError
from vcc.engine.arena import Arena
from vcc.engine.config.modes import GraphMode
from vcc.engine.graphs.blob_names import CUBIN
from vcc.engine.runtime.batch import StepLimits
from vcc.engine.runtime.dispatch import dispatcher_of
from vcc.engine.runtime.graph_stat import GraphStat
from vcc.engine.runtime.player.device import Device
from vcc.engine.runtime.player.handle import Mode, PlayerHandle
from vcc.engine.runtime.player.load import fill_weights
from vcc.engine.runtime.player.opening import read_parts
from vcc.engine.runtime.player.recorded import (
    PREFIX,
    Recorded,
    RecordedRunner,
    largest_first,
    place,
)
from vcc.engine.runtime.settings import Boot


def load_recorded(boot: Boot, device: Device) -> RecordedRunner:
    """A runner over the artifact's recorded tables.

    Raises:
        Damaged, IntegrityError: a blob or a table is not what was published.
        DeviceError: too little memory.
        ModelError: the weights do not fit.
    """
    with boot.ledger.phase("verify"):
        blobs = read_parts(boot, [n for n in boot.loaded.manifest.blobs if n.startswith(PREFIX)])
        tables = {Recorded.parse(n): d for n, d in blobs.items() if n.startswith(PREFIX)}
        if not tables:
            raise IntegrityError("the artifact has no node table", "it records no step either")
    with ExitStack() as failed:  # a boot that fails gives everything back at once
        with boot.ledger.phase("modules"):
            arena = failed.enter_context(Arena(device.ordinal))
            first = PlayerHandle(arena.handle, tables[largest_first(tables)[0]])
            failed.callback(first.close)
            for name, data in blobs.items():
                if name.startswith(CUBIN):
                    first.add_cubin(name.removeprefix(CUBIN), data)
        limits = _limits(boot, tables)
        dispatcher = dispatcher_of(
            boot.settings.compilation, max_seqs=boot.settings.max_seqs, breakable=True
        )
        with boot.ledger.phase("graphs"):
            mixed = how_mixed(dispatcher.mode)
            steps = place(first, tables, limits.num_blocks, limits, mixed)
            for step in steps[1:]:
                failed.callback(step.handle.close)
            boot.counters.add("restores", len(steps))
        with boot.ledger.phase("weights"):
            filled = fill_weights(boot, device, steps[0].layout.weight_place, blobs)
            boot.events.note(f"weights: {filled.bytes} bytes at {filled.gb_per_second:.1f} GB/s")
        runner = RecordedRunner(steps, dispatcher, limits, GraphStat(), arena)
        failed.pop_all()
    return runner


def how_mixed(mode: GraphMode) -> Mode:
    """How steps that are no pure decode are launched: whole, or in parts."""
    return Mode.PIECEWISE if mode.mixed_part is GraphMode.PIECEWISE else Mode.FULL


def _limits(boot: Boot, tables: Mapping[Recorded, bytes]) -> StepLimits:
    """Of the recorded steps; kernels have the number of KV blocks inside."""
    from vcc.engine.graphs.table.decode import decode

    table = decode(tables[largest_first(tables)[0]])
    blocks = [symbol.high for symbol in table.symbols if symbol.name == "K"]
    widths = [one.shape[-1] for one in table.tensors if one.name == "logits" and one.shape]
    if not blocks or not widths or not isinstance(widths[0], int):
        raise IntegrityError(
            "a recorded table is not a decoder's step", "it has no KV blocks or no logits"
        )
    settings = boot.settings
    return StepLimits(
        max_tokens=max(one.tokens for one in tables),
        max_seqs=max(one.seqs for one in tables),
        block_size=settings.block_size,
        num_blocks=blocks[0],
        max_blocks_per_seq=settings.max_blocks_per_seq,
        max_model_len=settings.model.max_model_len or 1,
        vocab=widths[0],
    )
