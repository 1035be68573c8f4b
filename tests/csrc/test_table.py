"""The node table in C++: it takes and refuses what the Python reader does, with the same words."""

from __future__ import annotations

import random
import shutil
import subprocess
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from support.fuzzers import build, command, has_libfuzzer
from support.table_damage import damaged
from support.table_files import files
from support.tables import SYMBOLS, every_kind, recorded, tables

from vcc.cache.errors import GraphError, IntegrityError, UsageError, VccError
from vcc.engine.graphs.expr import evaluate
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.exprs import check_exprs
from vcc.engine.graphs.table.frame import read_frame
from vcc.engine.graphs.table.types import Gemm, NodeTable, Symbol
from vcc.engine.native import functions, library

NATIVE = functions(
    {
        "vcc_table_check": "bytes u64",
        "vcc_table_evaluate": "bytes u64 buffer u64 buffer u64 -> u64",
    }
)

pytestmark = pytest.mark.skipif(library("vcc_abi") is None, reason="no native library")

FRONT = 424
NUMBERS = (0, 1, 2, 3, 8, 0x7F, 0xFF, 0x7FFF_FFFF, 0xFFFF_FFFF, 1 << 63, (1 << 64) - 1)


def said(check: object, *args: object) -> str:
    """What a reader objects to, empty for a table that it takes."""
    try:
        check(*args)  # type: ignore[operator]
    except IntegrityError as error:
        return f"{error.what}: {error.why}: {error.hint}"
    return ""


def assert_same(data: bytes) -> bool:
    python = said(decode, data)
    assert said(NATIVE.vcc_table_check, data, len(data)) == python
    return not python


def evaluated(data: bytes, *sizes: int, room: int = 4096) -> list[int]:
    """The values of all expressions by the C++ reader."""
    values = array("q", bytes(8 * room))
    count = NATIVE.vcc_table_evaluate(data, len(data), array("q", sizes), len(sizes), values, room)
    return list(values[:count])


def changed(seeds: list[bytes], runs: int) -> Iterator[bytes]:
    """Copies of the seeds with a few numbers overwritten, mostly in records."""
    draw = random.Random(11)
    for _ in range(runs):
        data = bytearray(draw.choice(seeds))
        for _ in range(draw.randint(1, 3)):
            width = draw.choice((1, 2, 4, 8))
            at = draw.randrange(FRONT if draw.random() < 0.9 else 0, len(data) - width)
            value = draw.choice((*NUMBERS, draw.randrange(64), draw.randrange(1 << 32)))
            data[at : at + width] = value.to_bytes(8, "little")[:width]
        yield bytes(data)


def test_both_readers_take_and_refuse_the_same_tables() -> None:
    seeds = [encode(every_kind()), encode(recorded())]
    taken = sum(assert_same(data) for data in changed(seeds, 6000))
    assert 100 < taken < 3000


def test_both_readers_give_the_same_reason_for_every_rule() -> None:
    for name, (data, _) in damaged().items():
        assert not assert_same(data), name


@given(tables())
@settings(max_examples=40, deadline=None)
def test_both_readers_take_every_table_and_find_the_same_values(table: NodeTable) -> None:
    data = encode(table)
    assert assert_same(data)
    exprs = check_exprs(read_frame(data))
    for sizes in ((1, 1), (512, 64), (77, 5)):
        assert evaluated(data, *sizes) == exprs.values(sizes)


@pytest.mark.parametrize("end", [*range(0, 440, 9), 600, 2000, 2879])
def test_a_shorter_file_is_refused_alike(end: int) -> None:
    assert not assert_same(encode(every_kind())[:end])


@pytest.mark.parametrize("version", [0, 1, 3])
def test_both_readers_refuse_other_versions(version: int) -> None:
    data = bytearray(encode(recorded()))
    data[8:12] = version.to_bytes(4, "little")
    assert not assert_same(bytes(data))
    assert f"version {version}, not 2" in said(decode, bytes(data))


TEXTS = ("äß∞😀", "\x7f", "a\nb", "\ud7ff\ue000", "\U0010ffff")
RAW = (b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\x80\x80\x80", b"\xe2\x82", b"\xff")


@pytest.mark.parametrize("raw", [*(text.encode() for text in TEXTS), *RAW], ids=repr)
def test_both_readers_agree_about_texts(raw: bytes) -> None:
    name = "N" * len(raw)
    data = encode(NodeTable(symbols=(Symbol(name, 1, 2),)))
    assert_same(data.replace(name.encode(), raw))


@pytest.mark.parametrize("op", ["+", "*", "//", "%", "min", "max", "ceildiv"])
def test_values_are_those_of_the_expression(op: str) -> None:
    table = NodeTable(symbols=SYMBOLS[:1], gemms=(Gemm([op, ["*", "T", 5], 7], 1, 1, "int8"),))
    for size in (1, 7, 14, 512):
        assert evaluated(encode(table), size)[-1] == evaluate(table.gemms[0].m, {"T": size})


@pytest.mark.parametrize("sizes", [(513, 1, 8), (0, 1, 8), (1, 1, -1), (1, 1), (1, 1, 8, 1)])
def test_sizes_beyond_the_table_are_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(GraphError, match="cannot size the graph"):
        evaluated(encode(every_kind()), *sizes)


def test_what_leaves_its_region_between_the_ends_is_refused_at_that_size() -> None:
    """An offset of T mod 512 is small at 1 and at 512, and large between them."""
    table = every_kind()
    moved = replace(table.tensors[0], offset=["*", ["%", "T", 512], 1200])
    data = encode(replace(table, tensors=(moved, *table.tensors[1:])))
    assert evaluated(data, 1, 64, 8)
    with pytest.raises(GraphError, match=r"tensors\[0\]: ends outside its region"):
        evaluated(data, 300, 1, 8)


def test_too_little_room_for_the_values_is_said() -> None:
    with pytest.raises(UsageError, match="room is for 1"):
        evaluated(encode(every_kind()), 1, 1, 8, room=1)


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_the_saved_seeds_are_current(path: Path) -> None:
    """Else: python tests/support/table_files.py."""
    data = files()[path]
    assert path.read_bytes() == data
    assert assert_same(data)


def test_errors_carry_the_hint_of_the_python_reader() -> None:
    with pytest.raises(VccError) as caught:
        NATIVE.vcc_table_check(b"", 0)
    assert caught.value.hint


def test_the_fuzz_target_finds_nothing_in_some_seconds(tmp_path: Path) -> None:
    """Under AddressSanitizer and UBSan; `make fuzz` is the long form."""
    libfuzzer = has_libfuzzer(tmp_path)
    if not libfuzzer and shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    program = build("table", tmp_path, libfuzzer=libfuzzer)
    (tmp_path / "found").mkdir()
    run = command(program, "table", 2, tmp_path / "found", libfuzzer=libfuzzer)
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
