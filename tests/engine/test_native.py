"""The ctypes door: what is found, what is refused, and that workers end with their parent."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest

import vcc
from vcc.cache.errors import (
    CompileError,
    DeviceError,
    DeviceShortage,
    GraphError,
    IntegrityError,
    StorageError,
    UsageError,
    VccError,
)
from vcc.engine import native

CSRC = Path(__file__).parents[2] / "csrc"

needs_abi = pytest.mark.skipif(native.library("vcc_abi") is None, reason="built without a compiler")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An install whose `_lib` folder is an empty one."""
    (tmp_path / "_lib").mkdir()
    monkeypatch.setattr(vcc, "__path__", [str(tmp_path)])
    native.abi.cache_clear()
    yield tmp_path / "_lib"
    native.abi.cache_clear()


@needs_abi
def test_the_abi_answers() -> None:
    assert native.abi().vcc_abi_version() == native.ABI_VERSION
    assert native.cpu_level() in (0, 2, 3, 4)


def test_without_the_library_the_error_says_what_to_install(elsewhere: Path) -> None:
    assert native.library("vcc_abi") is None
    with pytest.raises(DeviceError, match="not built") as caught:
        native.abi()
    assert "C++ compiler" in caught.value.hint


def test_a_library_that_is_no_library(elsewhere: Path) -> None:
    (elsewhere / "libvcc_abi.so").write_bytes(b"nothing")
    with pytest.raises(DeviceError, match="cannot load"):
        native.abi()


@needs_abi
def test_another_abi_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    native.abi.cache_clear()
    monkeypatch.setattr(native, "ABI_VERSION", 999)
    with pytest.raises(DeviceError, match="this vcc needs 999"):
        native.abi()
    native.abi.cache_clear()


NUMBERS = r"""
#include "abi/error.h"
#include "abi/vcc.h"
using namespace vcc;
extern "C" {
uint32_t vcc_abi_version(void) { return 0; }
VCC_API int32_t numbers(uint32_t a, int32_t b, uint64_t c, int64_t d, double e, uint64_t* sum,
                        double* scaled) {
  return guarded([&] {
    *sum = a + b + c + d;
    *scaled = e * 2;
  });
}
VCC_API int32_t joined(const char* text, const char* raw, const unsigned char* bytes, uint64_t size,
                       const char** out) {
  return guarded([&] {
    std::string found = std::string(text) + raw + (bytes == nullptr ? "none" : "");
    for (uint64_t i = 0; i < size; ++i) found += std::to_string(bytes[i]);
    *out = keep_text(found);
  });
}
VCC_API int32_t refuse(int32_t code) {
  return guarded([&] {
    if (code == 1) throw std::bad_alloc();
    VCC_EXPECT(code != 70, "a rule");
    Error error(static_cast<Code>(code % 100), "what\xc3\xa9", "why", "hint");
    if (code == 103) error.kind = kShortage;
    throw error;
  });
}
}
"""


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[native.Functions]:
    """Functions of a library made of abi/error.cpp and the source above."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("numbers")
    (folder / "numbers.cpp").write_text(NUMBERS)
    made = folder / "numbers.so"
    sources = (str(folder / "numbers.cpp"), str(CSRC / "abi" / "error.cpp"))
    flags = ("-std=c++20", "-shared", "-fPIC", f"-I{CSRC}")
    subprocess.run(["g++", *flags, *sources, "-o", str(made)], check=True)
    handle = ctypes.CDLL(str(made))
    handle.vcc_error_text.restype = ctypes.c_char_p
    table = {
        "numbers": "u32 i32 u64 i64 f64 -> u64 f64",
        "joined": "str bytes buffer u64 -> str",
        "refuse": "i32",
        "absent": "",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "abi", lambda: handle)
        made_functions = native.functions(table)
        with pytest.raises(DeviceError, match="absent"):
            made_functions.absent()
        for name in ("numbers", "joined", "refuse"):
            getattr(made_functions, name)
        yield made_functions


def test_numbers_go_in_and_come_out(numbers: native.Functions) -> None:
    assert numbers.numbers(4_000_000_000, -1, 2**40, -(2**40), 1.5) == (3_999_999_999, 3.0)


@pytest.mark.parametrize("value", [2**32, -(2**31) - 1, 10**30])
def test_a_number_of_more_bits_is_not_cut(numbers: native.Functions, value: int) -> None:
    with pytest.raises(UsageError, match="does not fit 32 bits"):
        numbers.numbers(1, value, 1, 1, 1.0)


def test_texts_and_buffers(numbers: native.Functions) -> None:
    assert numbers.joined("é", b"x", None, 0) == "éxnone"
    name = os.fsdecode(b"/not/utf-8/\xff")
    assert numbers.joined(name, b"", None, 0) == f"{name}none"
    assert numbers.joined("", b"", bytearray(b"\x01\x02"), 2) == "12"
    assert numbers.joined("", b"", b"\x03\x04", 2) == "34", "a read-only buffer"
    assert numbers.joined("", b"", memoryview(b"\x05\x06")[1:], 1) == "6"
    assert numbers.joined("", b"", numpy.array([258], dtype=numpy.uint16), 2) == "21"
    assert numbers.joined("", b"", b"", 0) == "none"
    with pytest.raises((BufferError, ValueError, TypeError)):
        numbers.joined("", b"", numpy.arange(8, dtype=numpy.uint8)[::2], 4)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (2, UsageError),
        (3, DeviceError),
        (5, StorageError),
        (7, IntegrityError),
        (8, CompileError),
        (9, GraphError),
    ],
)
def test_each_code_is_its_error(numbers: native.Functions, code: int, kind: type) -> None:
    with pytest.raises(kind) as caught:
        numbers.refuse(code)
    assert (caught.value.what, caught.value.why, caught.value.hint) == ("whaté", "why", "hint")
    assert int(caught.value.exit) == code


def test_a_kind_is_told_apart_within_its_code(numbers: native.Functions) -> None:
    with pytest.raises(DeviceShortage) as caught:
        numbers.refuse(103)
    assert (caught.value.what, caught.value.why, caught.value.hint) == ("whaté", "why", "hint")
    assert caught.value.as_dict()["id"] == "DEVICE"
    with pytest.raises(DeviceError) as other:
        numbers.refuse(3)
    assert type(other.value) is DeviceError


def test_broken_rules_and_foreign_exceptions_are_errors_too(numbers: native.Functions) -> None:
    with pytest.raises(VccError, match=r"a rule: code != 70 at .*numbers\.cpp:\d+") as caught:
        numbers.refuse(70)
    assert caught.value.exit == 70
    with pytest.raises(DeviceError, match="out of host memory"):
        numbers.refuse(1)


def test_a_name_that_was_not_declared(numbers: native.Functions) -> None:
    with pytest.raises(AttributeError):
        numbers.nothing()


@needs_abi
def test_a_child_ends_with_its_parent() -> None:
    """The parent is killed with SIGKILL, so nothing of it can tell the child."""
    child = "from vcc.engine import native; import time; native.die_with_parent(); "
    child += "print('ready', flush=True); time.sleep(60)"
    parent = (
        "import subprocess, sys, time\n"
        f"c = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE)\n"
        "c.stdout.readline(); print(c.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    assert _ends(pid)


def _ends(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":  # ended; an init that does not reap is not ours to judge
            return True
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    return False
