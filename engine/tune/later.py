"""At the first boot on a site: record what the store lacks, beside the run and after it.

The run does not wait and computes by the artifact's own kernels; the next one finds the products.
Torch-free, and reaches nothing of the build side: the recorder is in the process that is started.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from vcc.engine.config.environment import recorder_environment
from vcc.engine.tune.job import HELPER, Job
from vcc.engine.tune.libraries import CUBLASLT, CUPTI, candidates
from vcc.engine.tune.shapes import GemmShape, Gpu
from vcc.engine.tune.store import GemmStore


def missing(
    store: GemmStore, gpu: Gpu, wanted: Collection[GemmShape]
) -> tuple[tuple[GemmShape, ...], str]:
    """The products worth recording, and why there are none.

    Args:
        store: the site's store.
        gpu: the device of this run.
        wanted: products of the artifact at the row counts that its graphs and buckets have.
    """
    lacking = tuple(sorted(set(wanted) - store.known(gpu)))
    if not lacking:
        return (), "all products are stored"
    failed = [one for one in store.self_tests(gpu).values() if not one.passed]
    if failed:
        return (), f"stored products failed their self-test here: {failed[-1].why}"
    for name, sonames in (("CUPTI", CUPTI), ("cuBLASLt", CUBLASLT)):
        if not _found(sonames):
            return (), f"{name} is not on this machine"
    return lacking, ""


def start(root: Path, shapes: Sequence[GemmShape], ordinal: int) -> None:
    """Record in a process that outlives this one.

    Args:
        root: of the store.
        shapes: of `missing`; none starts nothing.
        ordinal: the device.
    """
    if not shapes:
        return
    with tempfile.TemporaryFile() as asked:
        asked.write(Job(root, tuple(shapes), ordinal).text().encode())
        asked.seek(0)
        subprocess.Popen(
            [sys.executable, "-m", HELPER],
            stdin=asked,
            env=recorder_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def _found(names: Sequence[str]) -> bool:
    """Whether any of the places is a file; what only the loader could find does not count."""
    return any(Path(place).is_file() for place in candidates(names))
