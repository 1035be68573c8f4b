"""The native library under sanitizers: memory, undefined behaviour and data races.

The tests of the arena, the table reader and the player, those of tables of ranges among them, run
once more in a process whose libvcc_abi and libcuda double are built with a sanitizer.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.fake_cuda import library
from support.sanitized import FLAGS, TESTS, environment, native

LEFT_OUT: Mapping[str, tuple[str, ...]] = {
    # Programs with sanitizers of their own, and builds.
    "address": ("fuzz_target",),
    # The sanitizer's own memory lies at the address that this test asks for.
    "thread": ("fuzz_target", "odd_bases"),
}
FILES = (
    *sorted(Path(__file__).parent.glob("test_arena*.py")),
    *sorted(Path(__file__).parent.glob("test_player*.py")),
    *(Path(__file__).with_name(f"test_{name}.py") for name in ("driver", "recorder_pool", "table")),
    TESTS / "engine" / "runtime" / "player",
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FLAGS)
def test_the_native_tests_pass_under_a_sanitizer(kind: str) -> None:
    settings = environment(kind)
    made = native(kind) / "_lib" / "libvcc_abi.so"
    library(*FLAGS[kind])
    left_out = " and ".join(f"not {name}" for name in (*LEFT_OUT[kind], "storm"))
    files = [str(path) for path in FILES]
    pytest_command = [sys.executable, "-m", "pytest", "-q", "-p", "support.sanitized"]
    pytest_command.append("--capture=sys")  # a sanitizer writes below Python
    # The thread sanitizer wants memory where random layouts may put libraries.
    command = ["setarch", platform.machine(), "-R", *pytest_command, "-k", left_out, *files]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    said = done.stdout[-6000:] + done.stderr[-6000:]
    assert done.returncode == 0, said
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 400, said
    assert f"native library: {made}" in done.stdout, said
