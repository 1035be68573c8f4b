"""Row 60: a library is opened only when its headers ask for what a piece may."""

from __future__ import annotations

import random
import re
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores import flipped, manifest_of

from vcc.cache.loaded import Loaded
from vcc.engine.runtime import torch_loader
from vcc.engine.runtime.elf import ElfPolicy, check_library
from vcc.engine.runtime.elf_read import STRTAB, read_asked

RELACOUNT = 0x6FFFFFF9
COMPILER = shutil.which("c++") or shutil.which("g++") or "clang++"
PLAIN = """
#include <stdexcept>
#include <string>
#include <vector>
extern "C" int aoti_torch_get_dim(void*, long*);
extern "C" int piece(int n) {
  long dim = 0;
  if (n < 0) throw std::runtime_error("negative " + std::to_string(n));
  return aoti_torch_get_dim(nullptr, &dim) + int(std::vector<int>(n).size());
}
"""


def build(folder: Path, source: str = PLAIN, *options: str) -> bytes:
    (folder / "a.cpp").write_text(source)
    made = folder / "a.so"
    command = [COMPILER, "-shared", "-fPIC", "-O1", "-o", str(made), "a.cpp", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made.read_bytes()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return build(tmp_path_factory.mktemp("plain"))


def test_a_library_of_torch_and_the_runtimes_may_be_opened(plain: bytes) -> None:
    check_library("piece/0.so", plain)
    asked = read_asked(plain)
    assert {"libstdc++.so.6", "libc.so.6"} <= set(asked.needed)
    assert "aoti_torch_get_dim" in asked.symbols


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["-Wl,--disable-new-dtags,-rpath,/tmp/evil"], "it has RPATH"),
        (["-Wl,--enable-new-dtags,-rpath,$ORIGIN"], "it has RUNPATH"),
        (["-Wl,--audit,/tmp/evil.so"], "it has AUDIT"),
        (["-Wl,--depaudit,/tmp/evil.so"], "it has DEPAUDIT"),
        (["-Wl,--auxiliary,evil.so"], "it has AUXILIARY"),
        (["-Wl,--filter,evil.so"], "it has FILTER"),
        (["-Wl,-z,execstack"], "it has an executable stack"),
    ],
)
def test_what_sends_the_loader_elsewhere_is_refused(
    tmp_path: Path, options: list[str], why: str
) -> None:
    with pytest.raises(ElfPolicy, match=re.escape(why)) as caught:
        check_library("piece/0.so", build(tmp_path, PLAIN, *options))
    assert (caught.value.exit, caught.value.id) == (7, "ELF_POLICY")


@pytest.mark.parametrize("name", ["libevil.so", "/tmp/x.so", "libc.so.6.evil", "libtorch.so/../e"])
def test_a_library_that_is_not_listed_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "b.cpp").write_text('extern "C" int other() { return 1; }')
    words = [COMPILER, "-shared", "-fPIC", "-o", "b.so", "b.cpp", f"-Wl,-soname,{name}"]
    subprocess.run(words, cwd=tmp_path, check=True)
    data = build(tmp_path, PLAIN, "-Wl,--no-as-needed", "./b.so")
    with pytest.raises(ElfPolicy, match="it needs"):
        check_library("piece/0.so", data)


@pytest.mark.parametrize("name", ["evil_function", "_ZN3c104evilEv", "PyRun_SimpleString"])
def test_a_function_of_nobody_is_refused(tmp_path: Path, name: str) -> None:
    source = f'extern "C" int {name}(); extern "C" int piece() {{ return {name}(); }}'
    with pytest.raises(ElfPolicy, match=f"it uses '{name}'"):
        check_library("piece/0.so", build(tmp_path, source))


def test_one_bad_library_keeps_all_of_an_artifact_closed(
    tmp_path: Path, plain: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = build(tmp_path, PLAIN, "-Wl,--enable-new-dtags,-rpath,$ORIGIN")
    opened: list[Path] = []
    monkeypatch.setattr(torch_loader, "open_piece", opened.append)
    blobs = {"piece/0.so": plain, "piece/1.so": evil}
    with pytest.raises(ElfPolicy, match=r"library piece/1\.so is not opened"):
        torch_loader.open_pieces(Loaded.of(manifest_of(), blobs))
    assert opened == []
    torch_loader.open_pieces(Loaded.of(manifest_of(), {"piece/0.so": plain}))
    assert len(opened) == 1


@pytest.mark.parametrize(
    "data",
    [b"", b"\x7fELF", b"\x7fELF\x02\x01\x01" + bytes(200), b"MZ" + bytes(500), b"PK\x03\x04"],
)
def test_what_is_no_library_is_refused(data: bytes) -> None:
    with pytest.raises(ElfPolicy, match="headers cannot be read"):
        check_library("piece/0.so", data)


def test_no_cut_or_flip_of_a_library_breaks_the_reader(plain: bytes) -> None:
    """The check answers for any bytes: yes, or `ElfPolicy`, and soon."""
    chance, start = random.Random(1), time.monotonic()
    for size in (*range(0, 4096, 61), *(chance.randrange(len(plain)) for _ in range(100))):
        answered(plain[:size])
    for _ in range(1500):
        answered(flipped(plain, chance.randrange(min(len(plain), 6000)), chance.randrange(8)))
    assert time.monotonic() - start < 30


@given(data=st.binary(max_size=400))
def test_no_bytes_after_a_good_beginning_break_the_reader(data: bytes) -> None:
    head = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 3)
    )
    answered(head + data)


def answered(data: bytes) -> bool:
    try:
        check_library("piece/0.so", data)
    except ElfPolicy:
        return False
    return True


def test_a_second_string_table_is_refused(plain: bytes) -> None:
    """Readers that take the first tag and loaders that take the last must not differ."""
    spare = plain.index(struct.pack("<Q", RELACOUNT))
    twice = plain[:spare] + struct.pack("<QQ", STRTAB, 0) + plain[spare + 16 :]
    with pytest.raises(ElfPolicy, match="stands 2 times"):
        check_library("piece/0.so", twice)
