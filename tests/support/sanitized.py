"""Tests of the native library under a sanitizer: a pytest plugin, and what a run with it needs.

`python -m pytest -p support.sanitized tests/csrc/test_player.py` in the environment of
`environment("address")` or `environment("thread")`: libvcc_abi and the libcuda double are those
that were built with the sanitizer.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support import fake_cuda

TESTS = Path(__file__).parents[1]
CSRC = TESTS.parent / "csrc"
PARTS = ("abi", "driver", "memory", "player", "recorder", "table")
ASKED = "VCC_TEST_SANITIZER"

FLAGS: Mapping[str, tuple[str, ...]] = {
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "thread": ("-fsanitize=thread",),
}
RUNTIMES: Mapping[str, tuple[str, ...]] = {
    # The C++ library goes along: a sanitizer that does not see it cannot follow exceptions.
    "address": ("libasan.so", "libubsan.so", "libstdc++.so.6"),
    "thread": ("libtsan.so", "libstdc++.so.6"),
}
OPTIONS: Mapping[str, Mapping[str, str]] = {
    # What Python keeps to its end is no leak of ours; nothing of ours is found by one.
    "address": {
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:detect_stack_use_after_return=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    },
    # Python and torch are built without it: of what happens inside them nothing is known.
    "thread": {"TSAN_OPTIONS": "ignore_noninstrumented_modules=1:halt_on_error=1:exitcode=66"},
}


def environment(kind: str) -> dict[str, str]:
    """Variables of a process whose native library is the one with the sanitizer.

    Raises:
        Skipped: there is no g++, or it came without the sanitizer.
    """
    found = [_runtime(name) for name in RUNTIMES[kind]]
    paths = os.pathsep.join([str(TESTS), *(entry for entry in sys.path if entry)])
    once = {ASKED: kind, "LD_PRELOAD": " ".join(found), "PYTHONPATH": paths}
    # Objects that Python keeps in one block of its own are not seen by a sanitizer.
    return {**os.environ, **OPTIONS[kind], **once, "PYTHONMALLOC": "malloc"}


def _runtime(name: str) -> str:
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    command = ["g++", f"-print-file-name={name}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if said == name:
        pytest.skip(f"g++ has no {name}")
    return said


def native(kind: str) -> Path:
    """A package folder with `_lib/libvcc_abi.so` under the sanitizer, built unless it is there."""
    sources = [path for part in PARTS for path in sorted((CSRC / part).glob("*.cpp"))]
    headers = [path for part in PARTS for path in sorted((CSRC / part).glob("*.h"))]
    digest = hashlib.sha256(repr(FLAGS[kind]).encode())
    for path in (*sources, *headers):
        digest.update(path.read_bytes())
    name = f"vcc-sanitized-{os.getuid()}-{digest.hexdigest()[:16]}"
    folder = Path(tempfile.gettempdir()) / name
    made = folder / "_lib" / "libvcc_abi.so"
    if not made.exists():
        made.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as objects:
            _build(sources, Path(objects), FLAGS[kind]).rename(made)
    return folder


def _build(sources: list[Path], folder: Path, flags: tuple[str, ...]) -> Path:
    """Compile two at a time, and link."""
    kept = ("-fno-omit-frame-pointer", f"-ffile-prefix-map={CSRC.parent}/=")
    fixed = ("g++", "-std=c++20", "-O1", "-g1", "-fPIC", *kept, *flags)

    def compiled(source: Path) -> str:
        made = folder / f"{source.parent.name}_{source.stem}.o"
        command = [*fixed, f"-I{CSRC}", "-fvisibility=hidden", "-c", str(source), "-o", str(made)]
        subprocess.run(command, check=True)
        return str(made)

    with ThreadPoolExecutor(max_workers=2) as pool:
        objects = list(pool.map(compiled, sources))
    made = folder / "libvcc_abi.so"
    subprocess.run([*fixed, "-shared", *objects, "-o", str(made), "-ldl", "-lpthread"], check=True)
    return made


def pytest_configure() -> None:
    """Put the library in front of the installed one, and the double in place of the plain one."""
    kind = os.environ.get(ASKED)
    if kind is None:
        return
    import vcc

    vcc.__path__.insert(0, str(native(kind)))
    plain = fake_cuda.library
    fake_cuda.library = lambda *flags: plain(*FLAGS[kind], *flags)  # type: ignore[assignment]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which library was used, so that nobody takes a run on the plain one for this."""
    mapped = Path("/proc/self/maps").read_text()
    for path in sorted({line.split()[-1] for line in mapped.splitlines() if "vcc_abi" in line}):
        terminalreporter.write_line(f"native library: {path}")
