"""Build and run the fuzz targets of csrc/fuzz.

``python tests/support/fuzzers.py table --seconds 600``: with clang's libFuzzer where there is one,
else with a plain driver that changes the saved seeds. Both run under AddressSanitizer and UBSan.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
CSRC = ROOT / "csrc"
CORPUS = ROOT / "tests" / "csrc" / "corpus"

TARGETS: Mapping[str, tuple[str, ...]] = {
    "table": (
        *("table/bounds.cpp", "table/check.cpp", "table/check_nodes.cpp"),
        *("table/frame.cpp", "table/reader.cpp", "abi/error.cpp"),
    ),
}
"""Sources that each target needs beside its own file ``csrc/fuzz/<name>_fuzz.cpp``."""

FLAGS = ("-std=c++20", "-O1", "-g1", "-Wall", "-Wextra", "-fno-sanitize-recover=all", "-pthread")


def has_libfuzzer(folder: Path) -> bool:
    """Whether there is a clang++ that links its fuzzer."""
    if shutil.which("clang++") is None:
        return False
    probe = folder / "probe.cpp"
    probe.write_text(
        "#include <cstddef>\n#include <cstdint>\n"
        'extern "C" int LLVMFuzzerTestOneInput(const uint8_t*, size_t) { return 0; }\n'
    )
    command = ["clang++", "-std=c++20", "-fsanitize=fuzzer,address,undefined", str(probe)]
    done = subprocess.run([*command, "-o", str(folder / "probe")], capture_output=True)
    return done.returncode == 0


def build(name: str, folder: Path, *, libfuzzer: bool) -> Path:
    """Compile a target, two sources at a time; the plain driver without sanitizers."""
    compiler, kinds = ("clang++", "fuzzer,") if libfuzzer else ("g++", "")
    flags = [*FLAGS, f"-fsanitize={kinds}address,undefined"]
    sources = [
        f"fuzz/{name}_fuzz.cpp",
        *TARGETS[name],
        *(() if libfuzzer else ("fuzz/replay.cpp",)),
    ]
    objects = [folder / f"{source.replace('/', '_')}.o" for source in sources]
    jobs = [
        [compiler, *(FLAGS if "replay" in source else flags), f"-I{CSRC}", "-c", str(CSRC / source)]
        for source in sources
    ]
    for job, made in zip(jobs, objects, strict=True):
        job += ["-o", str(made)]
    for first in range(0, len(jobs), 2):
        _run_all(jobs[first : first + 2])
    program = folder / f"{name}_fuzz"
    _run_all([[compiler, *flags, *map(str, objects), "-o", str(program)]])
    return program


def command(program: Path, name: str, seconds: float, found: Path, *, libfuzzer: bool) -> list[str]:
    """How a target is run for some seconds; libFuzzer keeps new inputs and crashes in `found`."""
    seeds = str(CORPUS / name)
    if not libfuzzer:
        return [str(program), seeds, str(seconds)]
    limits = (f"-max_total_time={max(1, int(seconds))}", "-max_len=65536", "-timeout=10")
    return [str(program), str(found), seeds, *limits, f"-artifact_prefix={found}/"]


def _run_all(commands: list[list[str]]) -> None:
    running = [subprocess.Popen(command) for command in commands]
    codes = [process.wait() for process in running]
    if any(codes):
        raise RuntimeError("a fuzz target does not build")


def main() -> int:
    """Build one target below ``build/fuzz`` and run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=float, default=600)
    wanted = parser.parse_args()
    folder = ROOT / "build" / "fuzz" / wanted.name
    found = folder / "found"
    found.mkdir(parents=True, exist_ok=True)
    libfuzzer = has_libfuzzer(folder)
    program = build(wanted.name, folder, libfuzzer=libfuzzer)
    run = command(program, wanted.name, wanted.seconds, found, libfuzzer=libfuzzer)
    return subprocess.run(run).returncode


if __name__ == "__main__":
    sys.exit(main())
