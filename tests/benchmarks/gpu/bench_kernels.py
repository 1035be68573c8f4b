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
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))

SECONDS = 110
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
    parser.add_argument("--only", nargs="*", default=["prefill", "decode", "sample", "linear"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--warm", help=argparse.SUPPRESS)
    parser.add_argument("--compile", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.dry:
        os.environ["TRITON_INTERPRET"] = "1"
    package()
    if options.warm or options.compile:
        return prepare(options)
    children(*(("--compile", 2) if options.dry else ("--warm", min(14, os.cpu_count() or 2))))
    from support.kernel_bench import Bench

    bench = Bench(dry=options.dry, until=time.monotonic() + options.seconds)
    found: dict[str, Any] = bench.about()
    for part in options.only:
        found[part] = bench.part(part)
        found["seconds"] = round(bench.spent(), 1)
        if options.out:
            options.out.write_text(json.dumps(found, indent=1) + "\n")
    found["failures"] = bench.failures
    print(json.dumps(found))
    return int(bool(bench.failures))


def prepare(options: argparse.Namespace) -> int:
    """In a child: compile one share of all kernels."""
    from support.kernel_bench_specs import compile_all, warm

    share, shares = map(int, (options.warm or options.compile).split("/"))
    if options.warm:
        warm(share, shares)
        return 0
    bad = compile_all(share, shares)
    print(*bad, sep="\n", file=sys.stderr)
    return int(bool(bad))


def children(option: str, shares: int) -> None:
    """Run the shares side by side, so that no time on the device goes to one compiler."""
    command = [sys.executable, __file__, option]
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    started = [
        subprocess.Popen([*command, f"{share}/{shares}"], env=environment, stdout=sys.stderr)
        for share in range(shares)
    ]
    codes = [child.wait() for child in started]
    if any(codes):
        print("some kernels do not compile", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
