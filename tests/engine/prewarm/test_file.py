"""A prewarm file: the matrix it means, and every mistake in it with line and column."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcc.cache.errors import Exit, UsageError
from vcc.engine.prewarm import file as reading
from vcc.engine.prewarm.file import read_file
from vcc.engine.prewarm.problems import BrokenFile

FULL = """\
[defaults]
weights = "none"
dtype = ["bf16"]
max_num_seqs = 8

[[build]]
model = "demo"
target = ["cpu", "sm_90"]
dtype = ["fp32", "bf16"]
mode = "full"
shapes = [1, 2]

[[build.override]]
when = { target = "sm_90", dtype = ["bf16"] }
max_num_seqs = 64
compilation_config = { level = 3 }

[[build]]
model = "./other"
"""


@pytest.fixture
def written(tmp_path):
    def write(text: str | bytes) -> Path:
        data = text.encode() if isinstance(text, str) else text
        (tmp_path / "vcc.toml").write_bytes(data)
        return tmp_path / "vcc.toml"

    return write


def test_lists_make_a_matrix_over_which_overrides_are_laid(written):
    cells = read_file(written(FULL))
    assert [cell.name for cell in cells] == [
        "demo · cpu · fp32 · full",
        "demo · cpu · bf16 · full",
        "demo · sm_90 · fp32 · full",
        "demo · sm_90 · bf16 · full",
        "./other · bf16",
    ]
    assert [cell.fields["max_num_seqs"] for cell in cells] == [8, 8, 8, 64, 8]
    assert cells[3].fields["compilation_config"] == {"level": 3}
    assert [cell.line for cell in cells] == [6, 6, 6, 6, 18]
    assert all(cell.fields["weights"] == "none" for cell in cells)


def test_options_of_a_build_are_in_its_name(written):
    (cell,) = read_file(written('[[build]]\nmodel = "demo"\nmax_num_seqs = 3\n'))
    assert cell.name == "demo · max_num_seqs=3"


def build(*lines: str) -> str:
    return "\n".join(("[[build]]", 'model = "demo"', *lines, ""))


BROKEN = {
    "unclosed list": ("a = [1,\n", 2, 1, "the file ends here"),
    "no value": ("\n\nkey = \n", 3, 7, "Invalid value"),
    "bare word": ("[[build]]\nmodel = demo\n", 2, 9, "Invalid value"),
    "key twice": (build('model = "x"'), 3, 12, "Cannot overwrite"),
    "not UTF-8": (b'[[build]]\nmodel = "\xff"\n', 2, 10, "not UTF-8"),
    "unknown table": ("[default]\n" + build(), 1, 1, 'did you mean "defaults"?'),
    "unknown field": (build('dtpye = "bf16"'), 3, 1, 'did you mean "dtype"?'),
    "unknown default": ("[defaults]\nmodes = 'full'\n" + build(), 2, 1, 'mean "mode"?'),
    "wrong type": (build("max_num_seqs = '8'"), 3, 1, "must be a whole number, it is text"),
    "a bool for a number": (build("max_num_seqs = true"), 3, 1, "it is true or false"),
    "zero": (build("max_num_seqs = 0"), 3, 1, "at least 1"),
    "unknown target": (build('target = ["cpu", "sm_9O"]'), 3, 18, '"sm_9O"'),
    "unknown architecture": (build('target = "sm_9x"'), 3, 1, "unknown CUDA architecture"),
    "unknown dtype": (build('dtype = ["bf61"]'), 3, 10, 'did you mean "bf16"?'),
    "unsupported dtype": (build('dtype = "fp8"'), 3, 1, "not possible"),
    "unknown mode": (build('mode = ["full",\n  "ful"]'), 4, 3, 'did you mean "full"?'),
    "value twice": (build('mode = ["full", "full"]'), 3, 17, 'has "full" twice'),
    "empty list": (build("mode = []"), 3, 1, "has no value"),
    "list of numbers": (build("mode = [1]"), 3, 9, "must be text"),
    "bad sizes": (build("shapes = [1, -2]"), 3, 1, "at least 1"),
    "bad input": (build('shape = ["x:2"]'), 3, 1, "cannot be read"),
    "bad level": (build("opt_level = 7"), 3, 1, "unknown opt_level"),
    "unknown config field": (build("compilation_config = {levl = 1}"), 3, 1, "unknown"),
    "config as text": (build('compilation_config = "{}"'), 3, 1, "must be a table"),
    "empty model": ('[[build]]\nmodel = " "\n', 2, 1, "not empty"),
    "no model": ('[[build]]\ndtype = "bf16"\n', 1, 1, "needs a model"),
    "build as a table": ('[build]\nmodel = "demo"\n', 1, 1, "[[build]]"),
    "build as text": ('build = "demo"\n', 1, 1, "[[build]]"),
    "defaults as text": ("defaults = 1\n" + build(), 1, 1, "must be a table"),
    "nothing": ("", 1, 1, "no build"),
    "override for nothing": (
        build("[[build.override]]", 'when = { dtype = "fp32" }', "max_num_seqs = 1"),
        *(3, 1, "no combination"),
    ),
    "override without when": (build("[[build.override]]", "max_num_seqs = 1"), 3, 1, "needs when"),
    "override of the matrix": (
        build('mode = "full"', "[[build.override]]", 'when = {mode = "full"}', 'dtype = "bf16"'),
        *(6, 1, 'unknown field "dtype"'),
    ),
    "when of another field": (
        build("[[build.override]]", "when = { weights = 'none' }", "max_num_seqs = 1"),
        *(4, 10, 'unknown field "weights"'),
    ),
    "deep": ("a = " + "[" * 300 + "]" * 300, 1, 1, "deep"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_mistake_has_line_and_column(written, name):
    text, line, column, said = BROKEN[name]
    with pytest.raises(BrokenFile) as caught:
        read_file(written(text))
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (line, column), problem
    assert said in problem.text
    assert caught.value.exit is Exit.USAGE
    assert f"vcc.toml:{line}:{column}: " in caught.value.why


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(written):
    with pytest.raises(BrokenFile) as caught:
        read_file(written(build("max_num_seqs = 0") + build('dtpye = "x"', "weights = 3")))
    assert [one.line for one in caught.value.problems] == [3, 6, 7]
    assert len(caught.value.as_dict()["problems"]) == 3


def test_a_file_that_is_not_there_or_too_large_is_refused(written, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="No such file"):
        read_file(tmp_path / "none.toml")
    monkeypatch.setattr(reading, "MAX_FILE", 8)
    with pytest.raises(UsageError, match="larger"):
        read_file(written(FULL))


def test_more_builds_than_anybody_means_are_refused(written, monkeypatch):
    monkeypatch.setattr(reading, "MAX_BUILDS", 4)
    with pytest.raises(BrokenFile, match="5 builds are more than 4"):
        read_file(written(FULL))


def test_line_ends_of_windows_and_a_byte_order_mark_are_read(written):
    assert len(read_file(written(b"\xef\xbb\xbf" + FULL.replace("\n", "\r\n").encode()))) == 5


PIECES = (
    *("[", "]", "[[", "]]", "{", "}", "=", ".", ",", "\n", " ", "#", '"', "'", '"""', "'''", "\\"),
    *("build", "defaults", "override", "when", "model", "dtype", "mode", '"bf16"', "'full'", "1"),
    *('[[build]]\nmodel = "demo"\n', "[[build.override]]\n", "true", "1979-05-27", "\r\n", "ä"),
)


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
@settings(max_examples=400)
def test_any_text_is_builds_or_mistakes_with_a_place(text):
    with TemporaryDirectory() as folder:
        file = Path(folder) / "vcc.toml"
        file.write_bytes(text.encode())
        found, problems = (), ()
        try:
            found = read_file(file)
        except BrokenFile as error:
            problems = error.problems
    assert found or problems
    lines = text.count("\n") + 1
    assert all(1 <= one.line <= lines and one.column >= 1 for one in problems)


@given(st.integers(0, len(FULL) - 1), st.sampled_from(PIECES), st.integers(0, 3))
@settings(max_examples=300)
def test_a_slip_in_a_good_file_is_a_mistake_with_a_place_or_none(at, piece, gone):
    with TemporaryDirectory() as folder:
        file = Path(folder) / "vcc.toml"
        file.write_bytes((FULL[:at] + piece + FULL[at + gone :]).encode())
        with suppress(BrokenFile):
            assert read_file(file)
