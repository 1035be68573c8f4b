"""Checkpoints and bindings for tests of weight uploads, and the copies of a plan done by numpy."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from vcc.engine.models.checkpoint import tensors_in
from vcc.engine.models.expressions import (
    Binding,
    Cat,
    ChannelsLast,
    Flat,
    FromTensor,
    Repeat,
    Rows,
    Stack,
    Tied,
    Transpose,
)
from vcc.engine.models.tensor_info import SIZES, TensorInfo
from vcc.engine.runtime.player.weight_plan import CODES, CONSTANTS, Home, WeightPlan

T = FromTensor
BINDINGS: Mapping[str, Binding] = {
    "embed": T("embed"),
    "qkv": Cat((T("q"), T("k"), T("v"))),
    "bias": Cat((T("bias_a"), T("bias_b"))),
    "turned": Transpose(T("q")),
    "turned_pair": Transpose(Cat((T("k"), T("v")))),
    "experts": Stack((T("k"), T("v"))),
    "turned_experts": Stack((Transpose(T("k")), Transpose(T("v")))),
    "some_experts": Rows(Stack((T("k"), T("v"), T("k"))), 1, 3),
    "half": Rows(T("q"), 3, 9),
    "half_turned": Rows(Transpose(T("q")), 2, 5),
    "half_pair": Rows(Cat((T("k"), T("v"))), 2, 6),
    "turned_half": Transpose(Rows(Transpose(T("q")), 1, 4)),
    "vectors": Transpose(Stack((T("bias_a"), T("bias_b")))),
    "joined": Cat((T("three"), T("three"))),
    "pixels": ChannelsLast(T("three")),
    "pixels_of_some": ChannelsLast(Rows(Cat((T("filters"), T("filters"))), 3, 8)),
    "pixels_of_stacked": ChannelsLast(Stack((T("three"), T("three")))),
    "pixels_of_tied": ChannelsLast(Tied("filters")),
    "filters": T("filters"),
    "points": ChannelsLast(T("points")),
    "scalar": T("scalar"),
    "repeated": Cat((Repeat(Flat(T("scalar")), 70), Repeat(Rows(T("bias_a"), 2, 3), 4))),
    "part_of_repeated": Rows(Repeat(Flat(T("scalar")), 9), 2, 7),
    "wide": T("wide"),
    "half_precision": T("half"),
    "head": Tied("embed"),
}
"""Every form of expression, and forms inside forms."""


def checkpoint(directory: Path, dtype: torch.dtype = torch.bfloat16) -> Mapping[str, TensorInfo]:
    """Three files of random tensors; `wide` is fp32 and `half` fp16 whatever `dtype` is."""
    torch.manual_seed(5)
    directory.mkdir(parents=True, exist_ok=True)
    shapes = {"embed": (64, 24), "q": (12, 7), "k": (4, 7), "v": (4, 7), "three": (2, 3, 5)}
    shapes |= {"filters": (6, 4, 3, 2), "points": (5, 3, 1, 1)}
    first = {name: torch.randn(shape).to(dtype) for name, shape in shapes.items()}
    save_file(first, directory / "model-00001-of-00003.safetensors")
    more = {"bias_a": (9,), "bias_b": (9,), "scalar": ()}
    second = {name: torch.randn(shape).to(dtype) for name, shape in more.items()}
    save_file(second, directory / "model-00002-of-00003.safetensors")
    third = {"wide": torch.randn(33, 5) * 3, "half": torch.randn(8, 3).half()}
    save_file(third, directory / "model-00003-of-00003.safetensors")
    index = {
        name: f"model-0000{i}-of-00003.safetensors"
        for i, part in enumerate((first, second, third), 1)
        for name in part
    }
    (directory / "model.safetensors.index.json").write_text(_index(index))
    return tensors_in(directory)


def _index(files: Mapping[str, str]) -> str:
    import json

    return json.dumps({"metadata": {}, "weight_map": dict(files)})


def homes(values: Mapping[str, Tensor], bindings: Mapping[str, Binding] = BINDINGS) -> list[Home]:
    """Places for these values, 256-aligned, tied ones at the place of their owner."""
    found: dict[str, Home] = {}
    at = 0
    for name, value in values.items():
        binding = bindings.get(name)
        tied = found[binding.name].offset if isinstance(binding, Tied) else None
        dtype = str(value.dtype).removeprefix("torch.")
        found[name] = Home(name, dtype, tuple(value.shape), at if tied is None else tied)
        at += 0 if tied is not None else -(-found[name].bytes // 256) * 256
    return list(found.values())


def size_of(places: list[Home]) -> int:
    """Bytes of the region."""
    return max(home.offset + home.bytes for home in places)


def done_by_numpy(plan: WeightPlan, size: int) -> bytes:
    """The region after every copy of the plan; conversions are left to torch."""
    names = {code: name for name, code in CODES.items()}
    region = np.zeros(size, np.uint8)
    files = {i: np.fromfile(path, np.uint8) for i, path in enumerate(plan.files)}
    files[CONSTANTS] = np.frombuffer(plan.constants, np.uint8)
    for entry in struct.iter_unpack("<IHHII6Q", plan.copies):
        file, stored, wanted, turned, more, source, place, rows, columns, step, stride = entry
        wide, narrow = SIZES[names[stored]], SIZES[names[wanted]]
        for plane in range(more + 1):
            first, into = source + plane * rows * columns * wide, place
            into += plane * rows * columns * narrow
            lines = [files[file][first + r * step :][: columns * wide] for r in range(rows)]
            data = np.stack(lines).reshape(rows, columns, wide).copy()
            values = torch.from_numpy(data).view(getattr(torch, names[stored]))[..., 0]
            values = values.to(getattr(torch, names[wanted]))
            for index, line in enumerate(values.T if turned else values):
                whole = torch.empty(len(line), dtype=line.dtype).copy_(line)
                raw = whole.view(torch.uint8).numpy()
                region[into + index * stride :][: len(raw)] = raw
    return region.tobytes()


def at(region: bytes, home: Home) -> Tensor:
    """The tensor that lies in the region at this place."""
    raw = torch.frombuffer(bytearray(region[home.offset :][: home.bytes]), dtype=torch.uint8)
    return raw.view(getattr(torch, home.dtype)).view(home.shape)
