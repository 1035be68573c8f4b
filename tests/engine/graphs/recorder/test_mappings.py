"""Mappings of a process: read from /proc, or from what a capture left."""

from __future__ import annotations

from pathlib import Path

from vcc.engine.graphs.recorder.mappings import Mapping, read_mappings

TEXT = """\
00400000-00452000 r-xp 00000000 08:02 173521      /opt/a folder/python
200000000-200200000 rw-s 00000000 00:06 1032      /dev/nvidiactl
7ffe10000000-7ffe10800000 rw-p 00000000 00:00 0
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0   [vsyscall]
"""


def test_lines_become_mappings(tmp_path: Path) -> None:
    (tmp_path / "maps").write_text(TEXT)
    assert read_mappings(tmp_path / "maps") == (
        Mapping(0x40_0000, 0x45_2000, "r-xp /opt/a folder/python"),
        Mapping(0x2_0000_0000, 0x2_0020_0000, "rw-s /dev/nvidiactl"),
        Mapping(0x7FFE_1000_0000, 0x7FFE_1080_0000, "rw-p of no file"),
        Mapping(0xFFFF_FFFF_FF60_0000, 0xFFFF_FFFF_FF60_1000, "--xp [vsyscall]"),
    )


def test_the_end_belongs_to_what_follows() -> None:
    one = Mapping(0x1000, 0x2000, "rw-p")
    assert [one.holds(at) for at in (0xFFF, 0x1000, 0x1FFF, 0x2000)] == [False, True, True, False]
    assert one.meets(0x1FFF, 0x3000)
    assert one.meets(0, 0x1001)
    assert not one.meets(0x2000, 0x3000)
    assert not one.meets(0, 0x1000)


def test_this_process_has_its_stack_where_it_says() -> None:
    mappings = read_mappings()
    assert list(mappings) == sorted(mappings, key=lambda one: one.start)
    assert any(one.name.endswith("[stack]") for one in mappings)
