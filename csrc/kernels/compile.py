"""Compile the CUDA kernels of this folder: one cubin an operator, and an index of what is in them.

    python compile.py --nvcc NVCC --out FOLDER [--strict] [--jobs N] sm_90a ...

Leaves FOLDER/<arch>/<operator>.cubin and FOLDER/<arch>/index.json, the same bytes wherever this
checkout, FOLDER and nvcc lie: sources are named relative to their folder and there is no line
information. Needs nothing but the standard library, as it runs in builds of the package.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FORMAT = 1
FLAGS = ("-cubin", "-std=c++20", "-O3", "--threads=1", "-Xptxas=-warn-spills,-warn-lmem-usage")
"""The same for all, as a cubin names those of its assembler."""


def main() -> int:
    """Compile; 1 and what nvcc said when a kernel does not compile."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("archs", nargs="+", help="architectures, such as sm_90a")
    options = parser.parse_args()
    try:
        for arch in options.archs:
            build(options.nvcc, arch, options.out, strict=options.strict, jobs=options.jobs)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def operators() -> list[str]:
    """The operators that have kernels: one source each."""
    return sorted(path.stem for path in HERE.glob("*.cu"))


def build(nvcc: str, arch: str, out: Path, *, strict: bool = False, jobs: int = 1) -> Path:
    """Compile every operator for one architecture; the index appears last.

    Args:
        nvcc: the compiler.
        arch: `sm_90a`, say.
        out: the folder of architectures.
        strict: any warning is an error: of registers spilled to memory, say.
        jobs: compilers at a time.

    Returns:
        The architecture's folder.

    Raises:
        RuntimeError: a kernel does not compile; with what nvcc said.
    """
    folder = out / arch
    folder.mkdir(parents=True, exist_ok=True)
    index = folder / "index.json"
    index.unlink(missing_ok=True)
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        made = pool.map(lambda name: _cubin(nvcc, arch, name, strict), operators())
        found = dict(zip(operators(), made, strict=True))
    for name, data in found.items():
        (folder / f"{name}.cubin").write_bytes(data)
    text = json.dumps(_index(arch, release(nvcc), found), indent=1, sort_keys=True) + "\n"
    index.write_text(text, encoding="utf-8")
    return folder


def release(nvcc: str) -> str:
    """The toolkit's version, such as "13.0"."""
    said = _said([nvcc, "--version"])
    found = re.search(r"release (\d+\.\d+)", said)
    if found is None:
        raise RuntimeError(f"{nvcc} does not say its release: {said[:200]}")
    return found[1]


def _cubin(nvcc: str, arch: str, name: str, strict: bool) -> bytes:
    """One compiler; its scratch files have names of their own, which must not reach the cubin."""
    number = arch.removeprefix("sm_")
    target = f"-gencode=arch=compute_{number},code={arch}"
    with tempfile.TemporaryDirectory() as scratch:
        result = Path(scratch) / f"{name}.cubin"
        said = _said([nvcc, *FLAGS, target, "-o", str(result), f"{name}.cu"])
        if strict and said:
            raise RuntimeError(f"{name}.cu for {arch}: {said[-3000:]}")
        return result.read_bytes()


def _said(command: list[str]) -> str:
    """What a command printed."""
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    said = (done.stderr + done.stdout).strip()
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {said[-3000:]}")
    return said


def _index(arch: str, toolkit: str, cubins: dict[str, bytes]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "arch": arch,
        "toolkit": toolkit,
        "cubins": {name: _entry(data) for name, data in cubins.items()},
    }


def _entry(data: bytes) -> dict[str, Any]:
    """What the index says of one cubin: bytes, SHA-256, and of each symbol what a launch needs."""
    functions = _reader().read_cubin(data).functions
    symbols = {
        name: {
            "threads": one.threads,
            "registers": one.registers,
            "shared": one.shared,
            "param_bytes": one.param_bytes,
        }
        for name, one in functions.items()
    }
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "symbols": symbols}


def _reader() -> Any:
    """The package's own reader of cubins, out of this checkout: the package is not there yet."""
    if "vcc" not in sys.modules:
        package = types.ModuleType("vcc")
        package.__path__ = [str(HERE.parents[1])]
        sys.modules["vcc"] = package
    from vcc.engine.graphs import cubin

    return cubin


if __name__ == "__main__":
    sys.exit(main())
