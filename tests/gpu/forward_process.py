"""A process that boots a plain forward and runs it on numpy arrays, without torch.

    python forward_process.py JOB.json OUT.npz

The job names model, store, options of `vcc.load_forward`, and batches: files of inputs (npz).
Writes output n of batch b as `<b>/<n>`. Prints one JSON line: heavy modules and counters.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import vcc

HEAVY = ("torch", "triton", "transformers", "sympy")


def main() -> None:
    """Run the job."""
    job, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    forward = vcc.load_forward(
        job["model"],
        cache_dir=Path(job["store"]),
        require_warm=True,
        golden="all",
        **job["options"],
    )
    found = {}
    for index, file in enumerate(job["batches"]):
        with np.load(file) as arrays:
            given = dict(arrays)
        for _ in range(2):  # a second call finds what the first one left
            results = forward(given)
        found |= {f"{index}/{name.removeprefix('output_')}": one for name, one in results.items()}
    np.savez(out, **found)
    heavy = [name for name in HEAVY if name in sys.modules]
    print(json.dumps({"heavy": heavy, "counters": forward.counters.as_dict()}))


if __name__ == "__main__":
    main()
