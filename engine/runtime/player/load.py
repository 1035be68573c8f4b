"""load_player: from a GPU artifact and a checkpoint to a runner, without torch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from vcc.cache.errors import IntegrityError
from vcc.engine.arena import Arena
from vcc.engine.graphs.blob_names import CONSTANT, STEP
from vcc.engine.models.bindings import parse as parse_binding
from vcc.engine.models.expressions import Binding
from vcc.engine.models.turned import turned_of
from vcc.engine.runtime.dispatch import dispatcher_of
from vcc.engine.runtime.player import weights as upload
from vcc.engine.runtime.player.adapting import adapting, stacked
from vcc.engine.runtime.player.beside import Beside
from vcc.engine.runtime.player.boot_golden import check_some, has_goldens, import_goldens
from vcc.engine.runtime.player.collector import collector_paused
from vcc.engine.runtime.player.device import Device
from vcc.engine.runtime.player.gemms import Gemms, offer_gemms
from vcc.engine.runtime.player.handle import PlayerHandle
from vcc.engine.runtime.player.layout import Layout, WeightPlace
from vcc.engine.runtime.player.memory import check_room, choose_blocks
from vcc.engine.runtime.player.opening import add_cubins, open_context, read_parts
from vcc.engine.runtime.player.shapes import StepShapes
from vcc.engine.runtime.player.tables import (
    OpenTable,
    build_graphs,
    by_table,
    check_tables,
    open_tables,
    place_tables,
    table_ranges,
)
from vcc.engine.runtime.player.weight_plan import Home
from vcc.engine.runtime.settings import Boot

if TYPE_CHECKING:
    from vcc.engine.runtime.batch import StepLimits
    from vcc.engine.runtime.player.recorded import RecordedRunner
    from vcc.engine.runtime.player.runner import PlayerRunner

SLOTS = 4
RING = 256
THREADS = 2
"""Input slots, rows of decode tokens, and threads of a table that build graphs behind the first."""


def load_player(boot: Boot) -> PlayerRunner | RecordedRunner:
    """A runner over the artifact's node tables.

    Raises:
        Damaged, IntegrityError: a blob or the table is not what was published.
        DeviceError: no device, another one than the artifact is for, an older driver, too little
            memory.
        ModelError: the weights do not fit.
    """
    if boot.golden != "off" and has_goldens(boot):
        threading.Thread(target=import_goldens, name="vcc-golden", daemon=True).start()
    device = open_context(boot)
    if not any(name.startswith(STEP) for name in boot.loaded.manifest.blobs):
        from vcc.engine.runtime.player.load_recorded import load_recorded

        return load_recorded(boot, device)
    with boot.ledger.phase("verify"):
        ranges = table_ranges(boot.loaded.manifest)
        blobs = read_parts(boot, ranges)
    with (
        collector_paused(),
        ExitStack() as failed,
    ):  # a boot that fails gives everything back at once
        with boot.ledger.phase("modules"):
            arena = failed.enter_context(Arena(device.ordinal))
            tables = []
            for one in open_tables(arena.handle, ranges, blobs):
                failed.callback(one.handle.close)
                tables.append(one)
            handle = tables[0].handle
        with boot.ledger.phase("weights"):
            weights = _begin_weights(boot, device, arena, handle, blobs)
            failed.callback(weights.wait)  # it must not outlive the memory it writes
        with boot.ledger.phase("modules"):
            modules = Beside(partial(add_cubins, handle, blobs), "vcc-modules")
            failed.callback(modules.wait)
        with boot.ledger.phase("gemms"):
            sizes = boot.settings.compilation.capture_sizes or ()
            handles = [one.handle for one in tables]
            gemms = offer_gemms(handles, device, boot.site, sizes, unsigned=boot.unsigned)
            failed.callback(gemms.close)
        with boot.ledger.phase("modules"):
            boot.counters.add("restores", modules.result())
        with boot.ledger.phase("golden"):
            check_some(boot, handle)
        runner = _placed(boot, device, arena, tables, weights, gemms)
        failed.pop_all()
    return runner


@dataclass(frozen=True, slots=True)
class _Weights:
    """The weights on their way: their memory, the upload into it, and how to do that again."""

    placing: Beside[WeightPlace]
    filling: Beside[upload.WeightReport]
    refill: Callable[[], upload.WeightReport]

    def wait(self) -> None:
        """Until nothing is written any more."""
        self.placing.wait()
        self.filling.wait()


def _begin_weights(
    boot: Boot, device: Device, arena: Arena, handle: PlayerHandle, blobs: Mapping[str, bytes]
) -> _Weights:
    """First of all: an upload takes longer than everything that can be done beside it."""
    check_room(handle.bytes(1), arena.available())
    constants = {name: data for name, data in blobs.items() if name.startswith(CONSTANT)}
    placing = Beside(lambda: WeightPlace.read(handle.place_weights()), "vcc-place")

    def refill() -> upload.WeightReport:
        return fill_weights(boot, device, placing.result(), constants)

    return _Weights(placing, Beside(refill, "vcc-weights"), refill)


def _placed(
    boot: Boot,
    device: Device,
    arena: Arena,
    opened: Sequence[OpenTable],
    weights: _Weights,
    gemms: Gemms,
) -> PlayerRunner:
    dispatcher = dispatcher_of(
        boot.settings.compilation,
        max_seqs=boot.settings.max_seqs,
        lora_cases=boot.settings.lora_cases,
    )
    expected = len(boot.settings.lengths)
    with boot.ledger.phase("gemms"):
        graphs, _ = StepShapes(dispatcher, boot.settings.max_seqs, True).graphs(expected)
        gemms.start(by_table(opened, graphs))
        boot.events.note(str(gemms.report))
    with boot.ledger.phase("memory"):
        free = weights.placing.result().bytes + arena.available()
        blocks = choose_blocks(opened[0].handle, free, boot.settings)
        tables = place_tables(opened, (blocks.reserved, blocks.mapped), SLOTS, RING)
    limits = _limits(boot, tables[0].layout, blocks.mapped)
    check_tables(tables, limits)
    samples = all(one.layout.samples for one in tables)
    shapes = StepShapes(dispatcher, boot.settings.max_seqs, samples)
    with boot.ledger.phase("graphs"):
        build_graphs(tables, *shapes.graphs(expected), THREADS)
    with boot.ledger.phase("import"):  # beside the upload too
        from vcc.engine.runtime.graph_stat import GraphStat
        from vcc.engine.runtime.player.runner import PlayerParts, PlayerRunner
    with boot.ledger.phase("weights"):
        filled = weights.filling.result()
    boot.ledger.add_beside("weights", weights.filling.seconds)
    boot.events.note(
        f"weights: {filled.bytes} bytes at {filled.gb_per_second:.1f} GB/s; "
        f"{blocks.mapped} KV blocks of {blocks.block_bytes} bytes each"
    )
    if gemms.report.trouble:
        boot.events.note(str(gemms.report))
    parts = PlayerParts(
        *(device, tables, limits, shapes, GraphStat(), arena),
        refill=weights.refill,
        gemms=gemms,
        adapters=adapting(boot, device, weights.placing.result()),
    )
    return PlayerRunner(parts)


def fill_weights(
    boot: Boot, device: Device, place: WeightPlace, blobs: Mapping[str, bytes]
) -> upload.WeightReport:
    """Copy the checkpoint's weights and the artifact's constants to where a player has them.

    Raises:
        ModelError: the checkpoint does not fit the artifact.
        IntegrityError: a constant is missing.
    """
    written = stacked(boot)
    homes = [
        Home(one.target, one.dtype, one.shape, one.address - place.address, one.role == "constant")
        for one in place.tensors
        if one.target not in written
    ]
    constants = {
        name.removeprefix(CONSTANT): data
        for name, data in blobs.items()
        if name.startswith(CONSTANT)
    }
    bindings = bindings_of(boot)
    upload.check_stored_heads(bindings, boot.source.tensors)
    plan = upload.plan_weights(homes, bindings, boot.source.tensors, constants)
    return upload.load(plan, device.handle, place.address, place.bytes)


def bindings_of(boot: Boot) -> dict[str, Binding]:
    """The artifact's bindings by parameter, and those of weights that are turned.

    Raises:
        IntegrityError: the manifest has none, or one is no text.
    """
    texts = boot.loaded.manifest.info.get("bindings")
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise IntegrityError("the manifest has no bindings")
    found = {name: parse_binding(text) for name, text in texts.items()}
    return {**turned_of(boot.loaded.manifest), **found}


def _limits(boot: Boot, layout: Layout, blocks: int) -> StepLimits:
    from vcc.engine.runtime.batch import StepLimits

    settings, logits = boot.settings, layout.tensor("logits")
    return StepLimits(
        max_tokens=settings.model.max_num_batched_tokens or 1,
        max_seqs=settings.max_seqs,
        block_size=settings.block_size,
        num_blocks=blocks,
        max_blocks_per_seq=settings.max_blocks_per_seq,
        max_model_len=settings.model.max_model_len or 1,
        vocab=logits.shape[-1] if logits.shape else 0,
        max_loras=settings.model.max_loras or 0,
    )
