"""Speed of the project's Triton kernels on a device, beside torch's own, over candidate tiles.

    python tests/benchmarks/gpu/bench_kernels.py [--dry] [--only attention linear ...] [--out FILE]

Prints one JSON object: for each operator and shape the time, what share of the peer's speed or of
the memory's bandwidth that is, and the best candidate. `--dry` needs no device: it compiles every
candidate for sm_90, runs tiny sizes by Triton's interpreter and checks them against torch.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))

SECONDS = 140
"""After this no further shape is started."""


def package() -> None:
    """Make `vcc` importable from a bare checkout: links to its three folders."""
    place = Path(tempfile.mkdtemp(prefix="vcc-bench-")) / "vcc"
    place.mkdir()
    (place / "__init__.py").write_text('"""vcc of this checkout."""\n')
    for name in ("cli", "engine", "cache"):
        (place / name).symlink_to(ROOT / name)
    sys.path.insert(0, str(place.parent))


def main() -> int:
    """Run the parts; 1 when one of them failed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--only", nargs="*", default=["linear", "prefill", "decode", "sample"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    if options.dry:
        os.environ["TRITON_INTERPRET"] = "1"
    package()
    from support.kernel_bench import Bench

    bench = Bench(dry=options.dry, until=time.monotonic() + options.seconds)
    found: dict[str, Any] = bench.about()
    for part in options.only:
        found[part] = bench.part(part)
        found["seconds"] = round(bench.spent(), 1)
        if options.out:
            options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found))
    return int(bool(bench.failures))


if __name__ == "__main__":
    sys.exit(main())
