"""tune: record the products of artifacts on this device, time both ways, keep the choice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vcc.cache.errors import (
    CompileError,
    DeviceError,
    GraphError,
    IntegrityError,
    StorageError,
    UsageError,
    VccError,
)
from vcc.cache.loaded import Loaded
from vcc.engine.compile.scratch import scratch
from vcc.engine.config.environment import recorder_environment
from vcc.engine.events import Events
from vcc.engine.graphs.table.types import NodeTable
from vcc.engine.tune.families import Products, rows_of
from vcc.engine.tune.gpu import Gpu
from vcc.engine.tune.index import SelfTest
from vcc.engine.tune.job import HELPER, Answer, Job
from vcc.engine.tune.shapes import GemmShape, Measured, Refused
from vcc.engine.tune.store import GemmStore
from vcc.engine.tune.wanted import products_of, products_of_tables, step_tables

MODULE = "module"
"""The kind of artifact that a plain forward has."""

_ERRORS: dict[int, type[VccError]] = {
    int(kind.exit): kind
    for kind in (UsageError, DeviceError, StorageError, IntegrityError, CompileError, GraphError)
}


@dataclass(frozen=True, slots=True)
class Tuned:
    """What `vcc tune` did for one artifact.

    Attributes:
        answer: of the recording; None when it was not possible, and `trouble` says why.
        measured: the products that were timed; empty when timing was not asked for.
        unstorable: products that only the artifact's own kernels compute, at their most rows.
    """

    title: str
    answer: Answer | None
    trouble: str
    measured: tuple[Measured, ...]
    unstorable: tuple[Refused, ...] = ()


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be done.

    Attributes:
        rows: row counts; empty takes those of the artifact's graphs, and buckets of prefill.
        measure: time both ways.
        again: record what is stored already anew.
        ordinal: the device.
    """

    rows: tuple[int, ...] = ()
    measure: bool = True
    again: bool = False
    ordinal: int = 0


def tune(store: GemmStore, artifact: Loaded, wish: Wish, events: Events) -> Tuned:
    """Fill the GEMM store for an artifact, and choose.

    Where CUPTI or cuBLASLt are missing nothing is recorded, which the result says, and what is
    stored already is timed.

    Raises:
        DeviceError: no GPU.
        IntegrityError: the artifact or a stored product is damaged.
    """
    products = products_of(artifact)
    rows = wish.rows or default_rows(artifact, products)
    shapes = products.shapes(rows, alone=bool(wish.rows))
    lacking = _left_out(products, wish.rows)
    if lacking:
        events.note(f"{artifact.manifest.title}: {lacking}")
    answer, trouble = _recorded(store, shapes, wish, events)
    measured: tuple[Measured, ...] = ()
    if wish.measure and shapes:
        measured = _measured(store, artifact, products, shapes, wish, events, answer)
    title, refused = artifact.manifest.title, products.unstorable()
    return Tuned(title, answer, trouble or lacking, measured, refused)


def _left_out(products: Products, rows: Sequence[int]) -> str:
    """Why there is nothing to do for some of the rows that were asked for, or for any."""
    most = max(products.gemms.values(), default=0)
    if not most:
        return "it has no matrix products of its own"
    if products.fixed == products.gemms.keys():
        known = {one for ends in products.ends.values() for one in ends}
        other = ", ".join(str(one) for one in rows if one not in known)
        told = ", ".join(map(str, sorted(known)))
        return f"its products have {told} rows: left out are {other}" if other else ""
    beyond = ", ".join(str(one) for one in rows if one > most)
    return f"its steps have at most {most} rows: left out are {beyond}" if beyond else ""


def default_rows(artifact: Loaded, products: Products) -> tuple[int, ...]:
    """Rows of the graphs that the artifact declares, and buckets up to its largest step.

    A plain forward has no graphs of so many tokens: its rows are fixed, or those of buckets.
    """
    info = artifact.manifest.info
    compilation = {} if info.get("kind") == MODULE else info.get("compilation", {})
    sizes = compilation.get("capture_sizes") if isinstance(compilation, dict) else None
    declared = tuple(size for size in sizes or () if isinstance(size, int))
    return rows_of(declared, max(products.gemms.values(), default=1))


def record_apart(job: Job) -> Answer:
    """Record in a process of its own, and wait for it.

    Raises:
        VccError: what the process raised.
    """
    with scratch() as folder:
        answer = folder / "answer.json"
        done = subprocess.run(
            [sys.executable, "-m", HELPER, str(answer)],
            input=job.text().encode(),
            env=recorder_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
        if not answer.is_file():
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            why = f"it ended with {done.returncode}: {''.join(last)}"
            raise GraphError("the process that records matrix products failed", why)
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if "error" in found:
        error = found["error"]
        raise _ERRORS.get(error["exit"], VccError)(error["what"], error["why"], error["hint"])
    return Answer.of_dict(found)


def _recorded(
    store: GemmStore, shapes: Sequence[GemmShape], wish: Wish, events: Events
) -> tuple[Answer | None, str]:
    if not shapes:
        return None, ""
    events.stage_started("record", len(shapes))
    try:
        answer = record_apart(Job(store.root, tuple(shapes), wish.ordinal, wish.again))
    except DeviceError as error:
        trouble = ". ".join(part for part in (str(error), error.hint) if part)
        events.note(f"nothing was recorded: {trouble}")
        return None, trouble
    events.stage_finished("record", answer.seconds)
    return answer, _failed(answer.self_test)


def _failed(test: SelfTest | None) -> str:
    if test is None or test.passed:
        return ""
    return f"stored products did not give cuBLASLt's bits and are not used: {test.why}"


def _measured(
    store: GemmStore,
    artifact: Loaded,
    products: Products,
    shapes: Sequence[GemmShape],
    wish: Wish,
    events: Events,
    answer: Answer | None,
) -> tuple[Measured, ...]:
    from vcc.engine.graphs.recorder.calls import open_driver
    from vcc.engine.tune.bench import measure

    open_driver(wish.ordinal)
    gpu = answer.gpu if answer is not None else this_gpu(wish.ordinal)
    entries = {entry.shape: entry for entry in store.entries(gpu, shapes)}
    tables = step_tables(artifact)
    named = {digest for table in tables for digest, _ in table.cubins}
    cubins = {digest: artifact.read(f"cubin/{digest}") for digest in sorted(named)}
    events.stage_started("measure", len(shapes))
    found = []
    for shape in shapes:
        events.progress(str(shape), "running")
        one = measure(shape, _home(shape, tables), cubins, entries.get(shape))
        if max(one.stored_ns, one.variant_ns) >= 0:
            found.append(one)
        events.progress(str(shape), "done")
    chosen = [one for one in found if one.stored_ns >= 0]  # without an entry there is no choice
    if len(chosen) < len(found):
        events.note(f"{len(found) - len(chosen)} of {len(found)} products have no stored nodes")
    if chosen:
        version = 0 if answer is None else answer.cublaslt
        store.publish_choices(gpu, version, products.variants, chosen)
    return tuple(found)


def _home(shape: GemmShape, tables: Sequence[NodeTable]) -> NodeTable:
    """A table that multiplies so; which range it is for does not change the kernels."""
    return next((one for one in tables if products_of_tables([one]).has(shape)), tables[0])


def this_gpu(ordinal: int) -> Gpu:
    """The model of a device of this machine.

    Raises:
        DeviceError: there is no such device.
    """
    from vcc.engine.config.environment import read_environment
    from vcc.engine.native import functions

    native = functions({"vcc_device_open": "str i32 -> ptr", "vcc_device_info": "ptr -> str"})
    device = native.vcc_device_open(read_environment().libcuda, ordinal)
    return Gpu.of_info(native.vcc_device_info(device))
