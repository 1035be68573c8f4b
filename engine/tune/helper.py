"""The process that records matrix products: `python -m vcc.engine.tune.helper [ANSWER] < JOB`.

It watches the driver through CUPTI, which slows graph launches down for the rest of a process, so
it ends when it is done. It imports no torch.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from vcc.cache.errors import VccError
from vcc.cache.single_flight import single_flight
from vcc.engine.tune.gpu import Gpu
from vcc.engine.tune.job import Answer, Job
from vcc.engine.tune.store import GemmStore

TITLE = "recording matrix products"


def run_job(job: Job) -> Answer:
    """Record what the store lacks, test it, publish it.

    Raises:
        DeviceError: no GPU, CUPTI or cuBLASLt; with what works without.
        StorageError: the store cannot be written.
    """
    from vcc.engine.graphs.recorder.calls import open_cublaslt, open_driver, watch
    from vcc.engine.tune.command import this_gpu

    open_driver()  # first, as CUPTI says nothing useful where there is no driver
    watch()
    open_driver(job.ordinal)
    version, _ = open_cublaslt()
    gpu = this_gpu(job.ordinal)
    with single_flight(job.root, gpu.key.digest, TITLE):
        return _record(job, gpu, version)


def _record(job: Job, gpu: Gpu, version: int) -> Answer:
    from vcc.engine.tune.faster import faster
    from vcc.engine.tune.record import record
    from vcc.engine.tune.self_test import self_test

    store = GemmStore(job.root)
    known = frozenset() if job.again else store.known(gpu, version)
    missing = [shape for shape in job.shapes if shape not in known]
    kept = len(job.shapes) - len(missing)
    if not missing:
        return Answer(gpu, version, 0, kept, (), None, 0.0, 0)
    start = time.perf_counter()
    recorded = record(missing)
    chosen = faster(recorded.entries, recorded.others)
    seconds = time.perf_counter() - start
    tested, inexact = self_test(chosen)
    left_out = {one.shape for one in inexact}
    entries = tuple(one for one in chosen if one.shape not in left_out)
    store.publish_products(gpu, version, entries, tested)
    stored = entries if tested.passed else ()
    cubins = {digest: len(data) for entry in stored for digest, data in entry.cubins.items()}
    size = sum(cubins.values()) + sum(len(entry.table) for entry in stored)
    refused = (*recorded.refused, *inexact)
    return Answer(gpu, version, len(stored), kept, refused, tested, seconds, size)


def main(answer: str | None = None) -> None:
    """Do the job on standard input; the answer, or the error, goes to a file as JSON."""
    job = Job.parse(sys.stdin.read())
    try:
        found: dict[str, object] = run_job(job).as_dict()
    except VccError as error:
        found = {"error": error.as_dict()}
    if answer is not None:
        Path(answer).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:2])
