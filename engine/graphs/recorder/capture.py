"""Capture a model's graphs under torch with its memory at chosen addresses; the process then ends.

The folder that it leaves holds a description of each graph, the cubins, and (of the first
placement) what the graphs answer to the batches of `samples.py`.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
from vcc.engine.graphs.recorder.addresses import REPORT, Addresses, place
from vcc.engine.graphs.recorder.answers import Trial, shaped
from vcc.engine.graphs.recorder.calls import (
    Cubins,
    describe,
    open_driver,
    open_pool,
    pool_used,
    reserve,
)
from vcc.engine.graphs.recorder.capturing import captured, rehearsed
from vcc.engine.graphs.recorder.known import MAPS
from vcc.engine.graphs.recorder.parts import Part, parts_text
from vcc.engine.graphs.recorder.plan import (
    IO,
    KV_CACHE,
    WEIGHTS,
    WORKSPACE,
    Descriptor,
    Recording,
    Slot,
)
from vcc.engine.graphs.recorder.spread import spread_device
from vcc.engine.graphs.table.types import Role

WARMUPS = 2

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


def capture(
    subject: Subject, name: str, folder: Path, first: Addresses | None, *, answers: bool
) -> None:
    """Capture every descriptor; CUPTI watches since before torch started CUDA.

    Args:
        subject: the model.
        name: of the capture, one of `addresses.NAMES`.
        folder: where everything goes; the report last.
        first: where the first capture lay; None for that one itself.
        answers: also replay each graph on its batch and keep the output.

    Raises:
        GraphError: capture failed, or a graph holds what a table cannot.
        DeviceError: out of memory, or the addresses are taken.
    """
    torch.cuda.init()
    ordinal = torch.cuda.current_device()
    torch.empty(1, device="cuda")  # makes the context, and loads no kernel
    open_driver()
    recording = subject.recording
    regions = recording.sizes(0)[:WORKSPACE]
    free, _ = torch.cuda.mem_get_info(ordinal)
    where = place(name, regions, free, first, reserve)
    spread_device(name)
    pools = [_pool(index, ordinal, where) for index in range(len(where.sizes))]
    memory = [_region(pools[index], where.bases[index], size) for index, size in enumerate(regions)]
    tensors = {
        slot.name: _view(memory[region], slot, slot.shape) for region, slot in recording.slots()
    }
    _fill(memory, subject, tensors)
    with torch.no_grad():
        run = subject.make(tensors)
        graphs = _captured(recording, run, tensors, pools[WORKSPACE])
    _write(graphs, folder)
    used = pool_used(WORKSPACE)
    trial = Trial(recording, memory, tensors, folder)
    for descriptor, parts in graphs.items() if answers else ():
        begin = partial(_begin, subject, descriptor, memory, tensors)
        with torch.no_grad():
            trial.run(descriptor, parts, begin, partial(_step, recording, run, tensors, descriptor))
    report = {
        "used": (*regions, used),
        "addresses": where.as_dict(),
        "device": device_info(ordinal),
        "cuda": torch.version.cuda or "",
    }
    (folder / MAPS).write_bytes(Path("/proc/self/maps").read_bytes())
    (folder / REPORT).write_text(json.dumps(report), encoding="utf-8")


def _pool(index: int, ordinal: int, where: Addresses) -> Any:
    open_pool(index, ordinal, where.bases[index], where.sizes[index])
    library = native.library("vcc_abi")
    names = (f"vcc_pool_malloc_{index}", "vcc_pool_free")
    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(library), *names)
    _kept.append(allocator)  # a pool does not keep its allocator alive
    return torch.cuda.MemPool(allocator.allocator())


_kept: list[Any] = []


def _region(pool: Any, base: int, size: int) -> Tensor:
    """All bytes of a region, as one tensor at the pool's base."""
    with torch.cuda.use_mem_pool(pool):
        memory = torch.empty(max(size, 1), dtype=torch.uint8, device="cuda")
    if memory.data_ptr() != base:
        raise GraphError(
            "torch does not take memory from the recorder's pool",
            f"{size} bytes lie at {memory.data_ptr():#x}, the pool begins at {base:#x}",
            "leave PYTORCH_CUDA_ALLOC_CONF unset while recording",
        )
    return memory


def _view(memory: Tensor, slot: Slot, shape: Sequence[int]) -> Tensor:
    count = int(np.prod(shape, dtype=np.int64)) * DTYPES[slot.dtype].itemsize
    return memory[slot.offset : slot.offset + count].view(DTYPES[slot.dtype]).view(tuple(shape))


def _fill(memory: Sequence[Tensor], subject: Subject, tensors: Mapping[str, Tensor]) -> None:
    dtypes = {slot.dtype for slot in subject.recording.weights if slot.role is Role.WEIGHT}
    dtype = min(dtypes, default="float32")
    for seed, region in enumerate((WEIGHTS, KV_CACHE)):
        source = torch.from_numpy(samples.block(dtype, seed)).cuda()
        for at in range(0, len(memory[region]), samples.BLOCK):
            part = memory[region][at : at + samples.BLOCK]
            part.copy_(source[: len(part)])
    memory[IO].zero_()
    for name, data in subject.constants.items():
        _put(tensors[name], data)
    torch.cuda.synchronize()


def _put(tensor: Tensor, data: np.ndarray[Any, Any]) -> None:
    """Copy bytes; what is no type of numpy's comes as bits."""
    bits = torch.from_numpy(np.ascontiguousarray(data).reshape(-1).view(np.uint8).copy())
    tensor.view(-1).view(torch.uint8).copy_(bits)


def _captured(
    recording: Recording, run: Run, tensors: Mapping[str, Tensor], pool: Any
) -> dict[Descriptor, tuple[Part[Any], ...]]:
    """Warm up every descriptor, once more inside the workspace, then capture.

    Only the second round lies in the workspace, so that it holds the same in every process: the
    first compiles what is not in a cache yet. The libraries' own workspaces come with the second,
    as they belong to a stream.
    """
    stream, step = torch.cuda.Stream(), partial(_step, recording, run, tensors)

    def warm_up(stream: Any, times: int) -> None:
        with torch.cuda.stream(stream):
            for descriptor in recording.descriptors:
                for _ in range(times):
                    rehearsed(partial(step, descriptor), recording.breaks(descriptor))
                torch.cuda.synchronize()

    warm_up(torch.cuda.Stream(), WARMUPS)  # compiles and tunes, with memory of its own
    torch.cuda.empty_cache()
    gc.collect()
    gc.disable()  # when memory is freed decides where the next piece lies; the process ends soon
    with torch.cuda.use_mem_pool(pool):
        warm_up(stream, WARMUPS)
    return {
        one: captured(one, partial(step, one), recording.breaks(one), pool, stream)
        for one in recording.descriptors
    }


def _step(
    recording: Recording, run: Run, tensors: Mapping[str, Tensor], descriptor: Descriptor
) -> None:
    """Inputs of a step lie at the beginning of their slots, and so does what it gives."""
    inputs = {
        slot.name: shaped(tensors[slot.name], slot.shape_of(descriptor))
        for slot in recording.of_role(Role.INPUT)
    }
    result = run(descriptor, inputs)
    (output,) = recording.of_role(Role.OUTPUT)
    shaped(tensors[output.name], result.shape).copy_(result)


def _begin(
    subject: Subject,
    descriptor: Descriptor,
    memory: Sequence[Tensor],
    tensors: Mapping[str, Tensor],
) -> None:
    """The state that the check begins with, and a step's batch."""
    _fill(memory, subject, tensors)
    for name, data in samples.batch(subject.recording, descriptor).items():
        _put(shaped(tensors[name], data.shape), data)
    torch.cuda.synchronize()  # a step may run on any stream


def _write(graphs: Mapping[Descriptor, Sequence[Part[Any]]], folder: Path) -> None:
    cubins = Cubins()
    for descriptor, parts in graphs.items():
        told = [
            Part(part.kind, part.name, describe(part.held.raw_cuda_graph(), cubins))
            for part in parts
        ]
        (folder / f"{descriptor.file}.json").write_text(parts_text(told), encoding="utf-8")
    (folder / "cubin").mkdir()
    for digest, data in cubins.bytes.items():
        (folder / "cubin" / digest).write_bytes(data)


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
