"""load_forward_player: from a GPU artifact of a plain forward to what runs it, without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from vcc.engine.arena import Arena
from vcc.engine.config.modes import GraphMode
from vcc.engine.graphs.blob_names import STEP
from vcc.engine.graphs.table.decode import decode
from vcc.engine.runtime.player.boot_golden import check_some
from vcc.engine.runtime.player.device import Device
from vcc.engine.runtime.player.forward import ForwardTable, PlayedForward, graphs_of
from vcc.engine.runtime.player.gemm_report import GemmReport
from vcc.engine.runtime.player.gemms import Gemms, NoGemms, offer_gemms
from vcc.engine.runtime.player.load import fill_weights
from vcc.engine.runtime.player.memory import check_room
from vcc.engine.runtime.player.opening import add_cubins, open_context, read_parts
from vcc.engine.runtime.player.tables import OpenTable, open_tables, place_tables, table_ranges
from vcc.engine.runtime.settings import Boot

if TYPE_CHECKING:
    from vcc.engine.config.types import CompilationConfig
    from vcc.engine.graphs.table.types import NodeTable
    from vcc.engine.runtime.forward import Forward

SLOTS, RING = 2, 1
"""Input slots, and rows of decode tokens, which a forward has not."""


def load_module_player(boot: Boot) -> Forward:
    """A forward over the artifact's planned or recorded node tables.

    Raises:
        Damaged, IntegrityError: a blob or a table is not what was published.
        DeviceError: no device, another one than the artifact is for, an older driver, too little
            memory.
        ModelError: the weights do not fit.
    """
    if any(name.startswith(STEP) for name in boot.loaded.manifest.blobs):
        return load_forward(boot)
    from vcc.engine.runtime.recorded_module import load_module_recorded  # which brings torch

    return load_module_recorded(boot)


def load_forward(boot: Boot) -> PlayedForward:
    """The forward of a planned artifact; errors as `load_module_player`."""
    device = open_context(boot)
    with boot.ledger.phase("verify"):
        ranges = table_ranges(boot.loaded.manifest)
        blobs = read_parts(boot, ranges)
        known = [decode(blobs[name]) for name in ranges]
    with ExitStack() as failed:  # a boot that fails gives everything back at once
        with boot.ledger.phase("modules"):
            arena = failed.enter_context(Arena(device.ordinal))
            opened = []
            for one in open_tables(arena.handle, ranges, blobs):
                failed.callback(one.handle.close)
                opened.append(one)
            check_room(opened[0].handle.bytes(1), arena.available(), SMALLER)
        with boot.ledger.phase("gemms"):
            gemms = _offered(boot, device, opened, known)
            failed.callback(gemms.close)
        with boot.ledger.phase("modules"):
            boot.counters.add("restores", add_cubins(opened[0].handle, blobs))
        with boot.ledger.phase("golden"):
            check_some(boot, opened[0].handle)
        with boot.ledger.phase("memory"):
            placed = place_tables(opened, (1, 1), SLOTS, RING)
        sizes = captured(boot.settings.compilation)
        tables = [
            ForwardTable(step, table, graphs_of(table, sizes))
            for step, table in zip(placed, known, strict=True)
        ]
        _ready(boot, device, tables, blobs, gemms)
        failed.pop_all()
    return PlayedForward(tables, arena, gemms)


def _ready(
    boot: Boot,
    device: Device,
    tables: Sequence[ForwardTable],
    blobs: Mapping[str, bytes],
    gemms: Gemms,
) -> None:
    """Weights, and graphs of the products that are brought meanwhile."""
    with boot.ledger.phase("gemms"):
        gemms.start([one.graphs for one in tables])
        boot.events.note(str(gemms.report))
    with boot.ledger.phase("weights"):
        _fill(boot, device, tables[0], blobs)
    fixed = not any(one.table.symbols for one in tables)
    with boot.ledger.phase("graphs"):
        for one in tables:
            if one.graphs:
                one.step.handle.build(one.graphs, int(fixed), 1)
    if fixed:
        gemms.wait()  # the graph has: what went wrong is known now
    if gemms.report.trouble:
        boot.events.note(str(gemms.report))


SMALLER = "free memory of the device, or declare smaller inputs: --shape"


def _fill(boot: Boot, device: Device, one: ForwardTable, blobs: Mapping[str, bytes]) -> None:
    if not boot.source.is_checkpoint:
        from vcc.engine.runtime.player.factory_weights import fill  # which brings torch

        fill(boot, one.step.handle, one.step.layout, blobs)
        return
    filled = fill_weights(boot, device, one.step.layout.weight_place, blobs)
    boot.events.note(f"weights: {filled.bytes} bytes at {filled.gb_per_second:.1f} GB/s")


def captured(compilation: CompilationConfig) -> tuple[int, ...]:
    """The sizes that have graphs."""
    without = compilation.cuda_graph_mode is GraphMode.NONE
    return () if without else tuple(compilation.capture_sizes or ())


def _offered(
    boot: Boot, device: Device, opened: Sequence[OpenTable], tables: Sequence[NodeTable]
) -> Gemms:
    """What the site's store has for the products of these tables."""
    if not any(one.gemms for one in tables):
        return NoGemms(GemmReport(0, 0))
    handles = [one.handle for one in opened]
    return offer_gemms(handles, device, boot.site, (), unsigned=boot.unsigned, tables=tables)
