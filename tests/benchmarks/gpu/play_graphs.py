"""One building of every declared graph in a fresh process without torch; prints one JSON line.

A process of its own for each: instantiation is twice as fast where graphs were just destroyed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from player_session import asked_session
from support.resident import peak_bytes

from vcc.engine.arena import Arena
from vcc.engine.finding import find
from vcc.engine.runtime.dispatch import dispatcher_of
from vcc.engine.runtime.player.beside import Beside
from vcc.engine.runtime.player.device import open_device
from vcc.engine.runtime.player.gemms import offer_gemms
from vcc.engine.runtime.player.handle import PlayerHandle, Shape
from vcc.engine.runtime.player.opening import add_cubins
from vcc.engine.runtime.player.shapes import StepShapes
from vcc.engine.runtime.settings import boot_settings

BLOCKS = 64


class Clock:
    """Milliseconds between marks."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self._last = self._start = time.perf_counter()

    def mark(self, name: str) -> None:
        """Close a stage."""
        now = time.perf_counter()
        self.stages[name] = 1e3 * (now - self._last)
        self._last = now

    @property
    def total(self) -> float:
        """From the first moment to the last mark."""
        return 1e3 * (self._last - self._start)


def shapes_of(settings: Any) -> tuple[tuple[Shape, ...], int]:
    """The graphs that a boot builds, and how many of them first."""
    dispatcher = dispatcher_of(settings.compilation, max_seqs=settings.max_seqs)
    return StepShapes(dispatcher, settings.max_seqs, True).graphs(1)


def built(loaded: Any, blobs: Mapping[str, bytes], site: Path, threads: int) -> dict[str, Any]:
    """Everything from the existing context to the last graph."""
    settings = boot_settings(loaded.manifest, [BLOCKS * 16])
    wanted, hot = shapes_of(settings)
    device = open_device()
    device.synchronize()
    clock = Clock()
    arena = Arena(device.ordinal)
    handle = PlayerHandle(arena.handle, blobs["table/step"])
    clock.mark("table")
    weights = Beside(handle.place_weights, "vcc-place")  # as a boot does, and the next line too
    modules = Beside(partial(add_cubins, handle, blobs), "vcc-modules")
    sizes = settings.compilation.capture_sizes or ()
    gemms = offer_gemms([handle], device, site, sizes)
    gemms.start([wanted])
    clock.mark("gemms")
    modules.result()
    clock.mark("modules")
    weights.result()
    clock.mark("weights")
    handle.place(BLOCKS, BLOCKS, 4, 256)
    clock.mark("memory")
    handle.build(wanted, hot, threads)
    clock.mark("hot graph")
    first = clock.total
    counts = handle.graphs(wait=True)
    clock.mark("other graphs")
    gemms.wait()
    report = gemms.report
    return {
        "stages_ms": clock.stages,
        "first_ms": first,
        "all_ms": clock.total,
        "descriptors": counts.ready,
        "failed": counts.failure,
        "gemms": str(report),
        "stored": report.entries,
        "used": report.used,
        "stats": handle.stats(),
    }


def main() -> None:
    """Find the artifact, read it, build."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    session = asked_session(options.model, mode="full")
    found = find(session)
    if not found.entries:
        raise SystemExit(found.why)
    loaded = session.store.load(found.entries[0])
    told = built(loaded, loaded.read_all(), session.store.root, options.threads)
    told["heavy"] = [name for name in ("torch", "triton") if name in sys.modules]
    told["peak_rss"] = peak_bytes()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
