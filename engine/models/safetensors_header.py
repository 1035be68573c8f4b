"""The header of a safetensors file, read with bounds and without torch.

    file   := size header data          (https://huggingface.co/docs/safetensors)
    size   := u64, little endian        bytes of header, at most 100 MB
    header := JSON object               name -> {"dtype", "shape", "data_offsets": [begin, end]},
                                        and "__metadata__" -> {string: string}
    data   := bytes                     offsets count from its start; tensors cover it exactly

A header comes with a download, so nothing in it is believed: sizes are capped, names are unique,
ranges neither overlap nor leave holes nor pass the end of the file.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vcc.cache.errors import ModelError
from vcc.cache.named_files import open_named
from vcc.engine.models.tensor_info import SIZES, TensorInfo

LONGEST_HEADER = 100_000_000
MOST_TENSORS = 1_000_000
HIGHEST_RANK = 16

DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}


def read_header(file: Path) -> Mapping[str, TensorInfo]:
    """The tensors of one file by name, with byte ranges counted from the start of the file.

    Raises:
        ModelError: the file cannot be read, is cut short, or its header breaks the format.
    """
    text, start, size = _read(file)
    entries = _object(file, text)
    if len(entries) > MOST_TENSORS:
        raise _bad(file, f"it names {len(entries)} tensors")
    tensors = {
        name: _tensor(file, name, entry, start)
        for name, entry in entries.items()
        if name != "__metadata__"
    }
    _check_ranges(file, tensors, start, size)
    return tensors


def _bad(file: Path, why: str) -> ModelError:
    return ModelError(f"{file} is not a valid safetensors file", why, "download the file again")


def _cut(file: Path, why: str) -> ModelError:
    return ModelError(f"{file} is only in part here", why, "finish the download of this file")


def _read(file: Path) -> tuple[bytes, int, int]:
    """(header, first byte of data, size of the file)."""
    try:
        with open_named(file, pipes=False) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size < 8:
                raise _cut(file, f"it has {size} bytes")
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > LONGEST_HEADER:
                raise _bad(file, f"its header would have {length} bytes")
            if length > size - 8:
                raise _cut(file, f"its header has {length} bytes, the file {size}")
            return stream.read(length), 8 + length, size
    except OSError as error:
        raise ModelError(f"cannot read {file}", str(error.strerror)) from error


def _object(file: Path, text: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name occurs twice")
        return found

    try:
        value = json.loads(text.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise _bad(file, f"its header is not proper JSON: {error}") from error
    if not isinstance(value, dict):
        raise _bad(file, "its header is not an object")
    return value


def _tensor(file: Path, name: str, entry: Any, start: int) -> TensorInfo:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise _bad(file, f"the entry of {name[:80]!r} is malformed")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(code, str) or code not in DTYPES:
        raise _bad(file, f"{name[:80]!r} has the unknown dtype {str(code)[:20]!r}")
    if not _counts(shape) or len(shape) > HIGHEST_RANK:
        raise _bad(file, f"{name[:80]!r} has an impossible shape")
    if not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _bad(file, f"{name[:80]!r} has an impossible range")
    dtype = DTYPES[code]
    if math.prod(shape) * SIZES[dtype] != offsets[1] - offsets[0]:
        raise _bad(file, f"the range of {name[:80]!r} does not fit its shape and dtype")
    return TensorInfo(dtype, tuple(shape), file, start + offsets[0], start + offsets[1])


def _counts(value: Any) -> bool:
    """A list of whole numbers from 0 to 2**62."""
    return isinstance(value, list) and all(
        type(number) is int and 0 <= number <= 2**62 for number in value
    )


def _check_ranges(file: Path, tensors: Mapping[str, TensorInfo], start: int, size: int) -> None:
    at = start
    for name, info in _in_order(tensors):
        if info.start != at:
            raise _bad(file, f"{name[:80]!r} overlaps its neighbour or leaves a hole before it")
        at = info.end
    if at > size:
        raise _cut(file, f"its tensors end at byte {at}, the file has {size}")
    if at < size:
        raise _bad(file, f"{size - at} bytes after the last tensor")


def _in_order(tensors: Mapping[str, TensorInfo]) -> Iterator[tuple[str, TensorInfo]]:
    yield from sorted(tensors.items(), key=lambda item: (item[1].start, item[1].end))
