"""Own kernels compiled once each, in processes beside each other."""

from __future__ import annotations

import os
from collections.abc import Sequence
from multiprocessing import connection, get_context
from typing import Any

import msgspec

from vcc.cache.errors import CompileError
from vcc.engine.ops.triton.specs import KernelSpec
from vcc.engine.torch_shim.profiles import DeviceProfile
from vcc.engine.torch_shim.triton_build import CompiledKernel

Key = tuple[Any, ...]

# Forked, so that nothing is imported again and kernels need no name to be found by.
_FORK = get_context("fork")


def compile_specs(
    specs: Sequence[KernelSpec], profile: DeviceProfile, jobs: int = 0
) -> dict[Key, CompiledKernel]:
    """The cubin of every spec, by `KernelSpec.key()`; equal ones are compiled once.

    Args:
        specs: what to compile.
        profile: the device.
        jobs: processes; 0 takes one a processor.

    Raises:
        CompileError: of the first kernel that does not compile.
    """
    unique = {spec.key(): spec for spec in specs}
    keys = list(unique)
    count = max(1, min(jobs or len(os.sched_getaffinity(0)), len(keys)))
    # This process takes a share too: each worker counts its memory once more.
    workers = [_start(unique, keys[at::count], profile) for at in range(1, count)]
    found: dict[Key, CompiledKernel] = {}
    try:
        found.update((key, unique[key].compile(profile)) for key in keys[::count])
        for at, (process, pipe) in enumerate(workers, 1):
            found.update(zip(keys[at::count], _received(process, pipe), strict=True))
    finally:
        for process, _ in workers:
            process.kill()
            process.join()
    return found


def _start(unique: Any, keys: Sequence[Key], profile: DeviceProfile) -> tuple[Any, Any]:
    ours, theirs = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_work, args=([unique[key] for key in keys], profile, theirs))
    process.start()
    theirs.close()
    return process, ours


def _work(specs: Sequence[KernelSpec], profile: DeviceProfile, pipe: Any) -> None:
    """Body of a worker: its kernels, or what the first one failed with, as bytes."""
    from vcc.engine.torch_shim.process import end

    try:
        made: dict[str, Any] = {"kernels": [spec.compile(profile) for spec in specs]}
    except CompileError as error:
        made = {"error": error.as_dict()}
    except BaseException as error:
        text = f"{type(error).__name__}: {error!s:.1000}"
        made = {"error": CompileError("a kernel does not compile", text).as_dict()}
    pipe.send_bytes(msgspec.msgpack.encode(made))
    end(0)


def _received(process: Any, pipe: Any) -> list[CompiledKernel]:
    connection.wait([pipe, process.sentinel])
    try:
        made = msgspec.msgpack.decode(pipe.recv_bytes())
    except EOFError:
        process.join()
        raise CompileError(
            "a process that compiles kernels ended without a result",
            f"it ended with status {process.exitcode}",
            "try fewer workers: --jobs 1",
        ) from None
    if error := made.get("error"):
        raise CompileError(error["what"], error["why"], error["hint"])
    return [msgspec.convert(kernel, CompiledKernel) for kernel in made["kernels"]]
