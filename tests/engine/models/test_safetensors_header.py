"""Headers of safetensors files: what the official writer writes is read, hostile ones are not."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from vcc.cache.errors import ModelError
from vcc.engine.models.safetensors_header import DTYPES, LONGEST_HEADER, read_header


def write(file: Path, header: Any, data: bytes = b"\0" * 8, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return file


def entry(shape: list[Any], begin: Any, end: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_a_file_of_the_official_writer_is_read_byte_for_byte(tmp_path: Path) -> None:
    tensors = {
        name: torch.arange(6).reshape(2, 3).to(getattr(torch, name)) for name in DTYPES.values()
    }
    tensors["none"] = torch.empty(0, 4)
    file = tmp_path / "x.safetensors"
    save_file(tensors, file, metadata={"format": "pt"})
    found = read_header(file)
    assert found.keys() == tensors.keys()
    for name, info in found.items():
        assert info.shape == tuple(tensors[name].shape)
        assert getattr(torch, info.dtype) == tensors[name].dtype
        raw = tensors[name].contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        assert file.read_bytes()[info.start : info.end] == raw


HOSTILE: dict[str, Any] = {
    "not json": b"{",
    "not utf-8": b"\xff\xfe",
    "not an object": [1],
    "nested too deeply": b"[" * 100_000,
    "name twice": b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
    b'"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
    "overlap": {"a": entry([1], 0, 4), "b": entry([1], 2, 6), "c": entry([], 4, 8)},
    "hole": {"a": entry([1], 4, 8)},
    "bytes left over": {"a": entry([1], 0, 4)},
    "same range twice": {"a": entry([2], 0, 8), "b": entry([2], 0, 8)},
    "ends before it starts": {"a": entry([1], 4, 0)},
    "negative offset": {"a": entry([1], -4, 0)},
    "offset is a float": {"a": entry([2], 0, 8.0)},
    "offset is true": {"a": entry([2], False, 8)},
    "three offsets": {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4, 8]}},
    "unknown dtype": {"a": entry([2], 0, 8, "F32X")},
    "dtype is a list": {"a": entry([2], 0, 8, ["F32"])},
    "negative size": {"a": entry([-2, -1], 0, 8)},
    "shape does not fit": {"a": entry([3], 0, 8)},
    "shape overflows 64 bits": {"a": entry([2**62, 4], 0, 0)},
    "rank too high": {"a": entry([1] * 60 + [2], 0, 8)},
    "no shape": {"a": {"dtype": "F32", "data_offsets": [0, 8]}},
    "unknown field": {"a": {**entry([2], 0, 8), "file": "/etc/passwd"}},
    "entry is a number": {"a": 1},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_header_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a valid safetensors file"):
        read_header(write(tmp_path / "x.safetensors", HOSTILE[name]))


def test_a_header_length_above_the_cap_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = write(tmp_path / "x.safetensors", {}, length=LONGEST_HEADER + 1)
    with pytest.raises(ModelError, match="header would have"):
        read_header(file)


@pytest.mark.parametrize("kept", [0, 7, 9, 60, -1])
def test_a_file_that_is_cut_short_is_called_so(kept: int, tmp_path: Path) -> None:
    file = write(tmp_path / "x.safetensors", {"a": entry([2], 0, 8)})
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(ModelError, match="only in part"):
        read_header(file)


def test_a_missing_file_is_an_error_with_its_cause(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="No such file"):
        read_header(tmp_path / "x.safetensors")


@given(data=st.data())
def test_a_changed_header_is_read_or_refused_but_never_fails_otherwise(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    good = json.dumps({"a": entry([1], 0, 4), "b": entry([1], 4, 8)}).encode()
    at = data.draw(st.integers(0, len(good) - 1))
    bad = good[:at] + data.draw(st.binary(max_size=4)) + good[at + 1 :]
    file = write(tmp_path_factory.getbasetemp() / "fuzz.safetensors", bad)
    try:
        found = read_header(file)
    except ModelError:
        return
    size = file.stat().st_size
    assert all(8 + len(bad) <= info.start <= info.end <= size for info in found.values())
