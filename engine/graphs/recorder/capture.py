"""Capture a model's graphs under torch with its memory at chosen addresses; the process then ends.

The folder that it leaves holds a description of each graph, the cubins, and (of the first
placement) what the graphs answer to the batches of `samples.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vcc.cache.errors import DeviceError, GraphError
from vcc.engine import native
from vcc.engine.config.environment import read_environment
from vcc.engine.graphs.dtypes import DTYPES
from vcc.engine.graphs.recorder import samples
from vcc.engine.graphs.recorder.calls import Cubins, describe, open_driver, open_pool, pool_used
from vcc.engine.graphs.recorder.plan import (
    IO,
    KV_CACHE,
    WEIGHTS,
    WORKSPACE,
    Descriptor,
    Recording,
    Slot,
)
from vcc.engine.graphs.table.types import Role

POOL_BYTES = 256 << 30
"""Addresses of a pool; memory comes as it is used."""

WARMUPS = 2

FIRST, FIRST_STEP = 0x6111_3560_0000, 0x0151_0040_0000
SECOND, SECOND_STEP = 0x6043_97A0_0000, 0x0133_00E0_0000
"""Where the first pool lies in either placement, and how far apart the pools are."""

PLACEMENTS: Mapping[str, tuple[int, ...]] = {
    "first": tuple(FIRST + FIRST_STEP * index for index in range(4)),
    "second": tuple(SECOND + SECOND_STEP * index for index in range(4)),
}
"""Addresses of the pools by placement; the third capture is at the first again."""

Run = Callable[[Descriptor, Mapping[str, Tensor]], Tensor]
"""The model: a descriptor and its inputs (of their sizes in it) to the output."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A model that is recorded.

    Attributes:
        recording: what of it.
        make: from the tensors in regions (weights and cache by name) to what runs a step.
        constants: data of constants by name.
    """

    recording: Recording
    make: Callable[[Mapping[str, Tensor]], Run]
    constants: Mapping[str, np.ndarray[Any, Any]]


def capture(subject: Subject, placement: str, folder: Path, *, answers: bool) -> None:
    """Capture every descriptor; CUPTI watches since before torch started CUDA.

    Args:
        subject: the model.
        placement: key of `PLACEMENTS`.
        folder: where everything goes; `report.json` last.
        answers: also replay each graph on its batch and keep the output.

    Raises:
        GraphError: capture failed, or a graph holds what a table cannot.
        DeviceError: out of memory, or the addresses are taken.
    """
    torch.cuda.init()
    ordinal = torch.cuda.current_device()
    torch.zeros(1, device="cuda")
    open_driver()
    pools = [_pool(index, ordinal, base) for index, base in enumerate(PLACEMENTS[placement])]
    recording = subject.recording
    sizes = recording.sizes(0)
    memory = [_region(pools[index], sizes[index]) for index in (WEIGHTS, KV_CACHE, IO)]
    tensors = {
        slot.name: _view(memory[region], slot, slot.shape) for region, slot in recording.slots()
    }
    _fill(memory, subject, tensors)
    with torch.no_grad():
        run = subject.make(tensors)
        graphs = _captured(recording, run, tensors, pools[WORKSPACE])
    _write(graphs, folder)
    if answers:
        for descriptor, graph in graphs.items():
            _answer(subject, descriptor, graph, memory, tensors, folder)
    used = (*sizes[:WORKSPACE], pool_used(WORKSPACE))
    report = {
        "used": used,
        "bases": PLACEMENTS[placement],
        "device": device_info(ordinal),
        "cuda": torch.version.cuda or "",
    }
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")


def _pool(index: int, ordinal: int, base: int) -> Any:
    open_pool(index, ordinal, base, POOL_BYTES)
    library = native.library("vcc_abi")
    names = (f"vcc_pool_malloc_{index}", "vcc_pool_free")
    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(library), *names)
    _kept.append(allocator)  # a pool does not keep its allocator alive
    return torch.cuda.MemPool(allocator.allocator())


_kept: list[Any] = []


def _region(pool: Any, size: int) -> Tensor:
    """All bytes of a region, as one tensor at the pool's base."""
    with torch.cuda.use_mem_pool(pool):
        return torch.empty(max(size, 1), dtype=torch.uint8, device="cuda")


def _view(memory: Tensor, slot: Slot, shape: Sequence[int]) -> Tensor:
    count = int(np.prod(shape, dtype=np.int64)) * DTYPES[slot.dtype].itemsize
    return memory[slot.offset : slot.offset + count].view(DTYPES[slot.dtype]).view(tuple(shape))


def _fill(memory: Sequence[Tensor], subject: Subject, tensors: Mapping[str, Tensor]) -> None:
    dtypes = {slot.dtype for slot in subject.recording.weights if slot.role is Role.WEIGHT}
    dtype = next(iter(dtypes), "float32")
    for seed, region in enumerate((WEIGHTS, KV_CACHE)):
        source = torch.from_numpy(samples.block(dtype, seed)).cuda()
        for at in range(0, len(memory[region]), samples.BLOCK):
            part = memory[region][at : at + samples.BLOCK]
            part.copy_(source[: len(part)])
    memory[IO].zero_()
    for name, data in subject.constants.items():
        tensors[name].copy_(torch.from_numpy(np.ascontiguousarray(data)))
    torch.cuda.synchronize()


def _captured(
    recording: Recording, run: Run, tensors: Mapping[str, Tensor], pool: Any
) -> dict[Descriptor, Any]:
    """Warm up every descriptor inside the workspace, then capture."""
    stream = torch.cuda.Stream()
    outputs = [slot.name for slot in recording.of_role(Role.OUTPUT)]

    def step(descriptor: Descriptor) -> None:
        inputs = {
            slot.name: _shaped(tensors[slot.name], slot.shape_of(descriptor))
            for slot in recording.of_role(Role.INPUT)
        }
        result = run(descriptor, inputs)
        target = tensors[outputs[0]]
        _shaped(target, result.shape).copy_(result)

    with torch.cuda.use_mem_pool(pool), torch.cuda.stream(stream):
        for descriptor in recording.descriptors:
            for _ in range(WARMUPS):
                step(descriptor)
            torch.cuda.synchronize()
    graphs: dict[Descriptor, Any] = {}
    for descriptor in recording.descriptors:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        try:
            with torch.cuda.graph(graph, pool=pool.id, stream=stream):
                step(descriptor)
        except RuntimeError as error:
            why = str(error).strip().splitlines()[0][:300]
            raise GraphError(
                f"a step of {descriptor.tokens} rows cannot be captured", why
            ) from error
        graphs[descriptor] = graph
    torch.cuda.synchronize()
    return graphs


def _shaped(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """The first elements of a dense tensor under another shape."""
    count = int(np.prod(tuple(shape), dtype=np.int64))
    return tensor.flatten()[:count].view(tuple(shape))


def _write(graphs: Mapping[Descriptor, Any], folder: Path) -> None:
    cubins = Cubins()
    for descriptor, graph in graphs.items():
        text = describe(graph.raw_cuda_graph(), cubins)
        (folder / f"{descriptor.file}.json").write_text(text, encoding="utf-8")
    (folder / "cubin").mkdir()
    for digest, data in cubins.bytes.items():
        (folder / "cubin" / digest).write_bytes(data)


def _answer(
    subject: Subject,
    descriptor: Descriptor,
    graph: Any,
    memory: Sequence[Tensor],
    tensors: Mapping[str, Tensor],
    folder: Path,
) -> None:
    """Replay torch's own graph from the same state that the check begins with."""
    _fill(memory, subject, tensors)
    for name, data in samples.batch(subject.recording, descriptor).items():
        tensor = _shaped(tensors[name], data.shape)
        bits = torch.from_numpy(np.ascontiguousarray(data).view(np.uint8).reshape(-1))
        tensor.view(-1).view(torch.uint8).copy_(bits)
    graph.instantiate()
    graph.replay()
    torch.cuda.synchronize()
    (slot,) = subject.recording.of_role(Role.OUTPUT)[:1]
    found = _shaped(tensors[slot.name], slot.shape_of(descriptor)).contiguous().view(torch.uint8)
    (folder / f"{descriptor.file}.out").write_bytes(found.cpu().numpy().tobytes())


def device_info(ordinal: int) -> Mapping[str, Any]:
    """What the driver says about a device."""
    calls = native.functions({"vcc_device_open": "str i32 -> ptr", "vcc_device_info": "ptr -> str"})
    device = calls.vcc_device_open(read_environment().libcuda, ordinal)
    found: Mapping[str, Any] = json.loads(calls.vcc_device_info(device))
    return found


def require_device(target: str) -> None:
    """Refuse to record where the GPU of a target is not.

    Raises:
        DeviceError: torch sees no GPU, or another one.
    """
    if not torch.cuda.is_available():
        raise DeviceError(
            "graphs can only be recorded on a GPU",
            "torch sees none on this machine",
            "use --compile vcc, which needs no GPU, or run this on the GPU machine",
        )
    major, minor = torch.cuda.get_device_capability()
    if target != f"sm_{major}{minor}":
        raise DeviceError(
            f"graphs for {target} cannot be recorded here",
            f"this GPU is sm_{major}{minor}, and kernels run to be recorded",
            f"use --target sm_{major}{minor}, or --compile vcc, which builds for any GPU",
        )
