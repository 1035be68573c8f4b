"""Bundles of files: what goes in comes out, and what is hostile stays out."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcc.cache import canonical
from vcc.cache.canonical import FormatError
from vcc.cache.errors import IntegrityError
from vcc.engine.guest.bundles import blob_of, packed, unpacked
from vcc.engine.guest.files import File, files_of, is_path, kind_of
from vcc.engine.guest.relocate import from_stored, is_group, to_stored


def filled(folder: Path, contents: dict[str, bytes]) -> dict[str, File]:
    for path, data in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return {one.path: one for one in files_of(folder)}


def test_files_come_back_as_they_were(tmp_path):
    source = random.Random(1)
    contents = {f"inductor/{n % 7}/f{n}": source.randbytes(n) for n in range(600)}
    blobs, left_out = packed(tmp_path, filled(tmp_path, contents))
    assert left_out == []
    assert len(blobs) <= 256
    found = dict(pair for name, data in blobs.items() for pair in unpacked(name, data, tmp_path))
    assert found == contents


def test_a_file_more_changes_one_blob(tmp_path):
    before, _ = packed(tmp_path, filled(tmp_path, {f"triton/K/{n}": b"x" for n in range(300)}))
    after, _ = packed(tmp_path, filled(tmp_path, {"triton/K/new": b"y"}))
    changed = [name for name in after if before.get(name) != after[name]]
    assert changed == [blob_of("triton/K/new")]


def bundle(rows: object, content: bytes = b"", **more: object) -> bytes:
    return canonical.encode({"files": rows, "format": 1, **more}, "test") + b"\n" + content


PATH = "inductor/a"
NAME = blob_of(PATH)

HOSTILE = {
    "nothing": b"",
    "no index": b"\n",
    "another format": bundle([], format=2),
    "more keys": bundle([], other=1),
    "not a list": bundle({}),
    "rows of another form": bundle([[PATH]]),
    "size as text": bundle([[PATH, "1"]], b"x"),
    "a bool for a size": bundle([[PATH, True]], b"x"),
    "negative": bundle([[PATH, -1]]),
    "too short": bundle([[PATH, 2]], b"x"),
    "too long": bundle([[PATH, 1]], b"xx"),
    "twice": bundle([[PATH, 1], [PATH, 1]], b"xx"),
    "not canonical": b'{"format": 1, "files": []}\n',
    "a text": bundle([["inductor/b", 1]], b"x").replace(b"[[", b'["', 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_malformed_bundle_is_refused(name, tmp_path):
    with pytest.raises(FormatError):
        list(unpacked(NAME, HOSTILE[name], tmp_path))


OUTSIDE = (
    *(
        "/etc/passwd",
        "../x",
        "inductor/../x",
        "inductor/..",
        "inductor",
        "inductor/",
        "inductor//x",
    ),
    *("other/x", "inductor/a\0b", "inductor/.hidden", "inductor/a\nb", "inductor/./x", "", "a"),
    *("inductor/" + "d/" * 20 + "x", "inductor/" + "x" * 300, "triton/a.lock", "inductor\\x"),
)


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_file_cannot_lie_elsewhere(path, tmp_path):
    assert not is_path(path)
    text = json.dumps(
        {"files": [[path, 1]], "format": 1}, separators=(",", ":"), ensure_ascii=False
    )
    with pytest.raises(IntegrityError):
        list(unpacked(blob_of(path), text.encode() + b"\nx", tmp_path))


def test_a_file_in_the_wrong_blob_is_refused(tmp_path):
    with pytest.raises(FormatError, match="belongs elsewhere"):
        list(unpacked("files/zz", bundle([[PATH, 1]], b"x"), tmp_path))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(data):
    with suppress(IntegrityError):
        list(unpacked(NAME, data, Path("/x")))


@given(st.text(max_size=40))
def test_paths_that_pass_stay_inside(path):
    if is_path(path):
        inside = (Path("/base") / path).resolve()
        assert inside.is_relative_to("/base")
        assert inside != Path("/base")


def group(folder: Path, **members: str) -> bytes:
    return json.dumps({"child_paths": members}).encode()


def test_group_files_of_triton_move_with_their_folder():
    old, new = Path("/old/triton/K"), Path("/new/triton/K")
    data = group(old, **{"k.cubin": f"{old}/k.cubin", "k.json": f"{old}/k.json"})
    stored = to_stored(data, old)
    assert stored == b'{"child_paths":{"k.cubin":"k.cubin","k.json":"k.json"}}'
    assert json.loads(from_stored(stored, new)) == {
        "child_paths": {"k.cubin": f"{new}/k.cubin", "k.json": f"{new}/k.json"}
    }


@pytest.mark.parametrize(
    "data",
    [
        group(Path(), a="/elsewhere/a"),
        group(Path(), a="/old/triton/K/../a"),
        group(Path(), a="/old/triton/K/b/a"),
        b'{"child_paths": {"a": 1}}',
        b'{"child_paths": []}',
        b'{"other": {}}',
        b"[" * 100_000,
        b"\xff",
        b"",
    ],
)
def test_group_files_that_say_something_else_are_not_stored(data):
    assert to_stored(data, Path("/old/triton/K")) is None


@pytest.mark.parametrize(
    "stored",
    [b'{"child_paths":{"a":"../a"}}', b'{"child_paths":{"a":"/a"}}', b'{"child_paths":{"a":""}}'],
)
def test_stored_group_files_name_files_beside_them(stored):
    with pytest.raises(FormatError):
        from_stored(stored, Path("/new"))


def test_group_files_are_known_by_name():
    assert is_group("triton/K/__grp__k.json")
    assert not is_group("inductor/K/__grp__k.json")
    assert not is_group("triton/K/k.json")


def test_kinds():
    paths = {
        "inductor/fxgraph/ab/key/code": "FX graphs",
        "inductor/aotautograd/key/code": "autograd graphs",
        "inductor/ab/cab.main.so": "C++ kernels",
        "triton/K/k.cubin": "Triton kernels",
        "triton/K/launcher.so": "Triton launchers",
        "inductor/ab/c.best_config": "autotuning results",
        "inductor/ab/c.py": "sources and the rest",
    }
    assert {path: kind_of(path) for path in paths} == paths
