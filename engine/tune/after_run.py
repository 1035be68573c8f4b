"""After a run on a GPU: what the store of products lacks is recorded by a process that outlives it.

The run has ended and must not wait, so all that takes time happens in that process:

    python -m vcc.engine.tune.after_run ROOT ARTIFACT
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from vcc.cache.errors import VccError
from vcc.engine.config.environment import read_environment, recorder_environment
from vcc.engine.tune.libraries import CUBLASLT, CUPTI, are_here

NOTE = (
    "the matrix products of cuBLASLt are recorded for the next run, beside; "
    "vcc tune also chooses between them and Triton's"
)


def record_beside(root: Path, artifact: str | None) -> str:
    """Start recording the products of the artifact that ran, where that is possible.

    Args:
        root: of the site's store.
        artifact: id of what ran; None where it is not stored.

    Returns:
        What was started, as a note; empty when nothing was.
    """
    allowed = artifact is not None and read_environment().record_products
    if not allowed or not (are_here(CUPTI) and are_here(CUBLASLT)):
        return ""
    try:
        start(root, str(artifact))
    except OSError:
        return ""  # the run is over and was right: this was an offer
    return NOTE


def start(root: Path, artifact: str) -> None:
    """Begin the process, and forget it."""
    silent = subprocess.DEVNULL
    subprocess.Popen(
        [sys.executable, "-m", __name__, str(root), artifact],
        env=recorder_environment(),
        stdin=silent,
        stdout=silent,
        stderr=silent,
        start_new_session=True,
    )


def main(root: str, artifact: str) -> None:
    """Record what is missing. Nobody listens: what goes wrong is tried again by the next run."""
    from vcc.engine.tune.helper import run_job
    from vcc.engine.tune.later import lacking

    with suppress(VccError):
        job = lacking(Path(root), artifact)
        if job is not None:
            run_job(job)


if __name__ == "__main__":
    main(*sys.argv[1:3])
