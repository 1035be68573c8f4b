"""Device memory that can be put to sleep and woken at the same addresses, for any torch code too.

arena = vcc.Arena()
with arena.tag("weights"):
    model = Model().cuda()
arena.sleep()
arena.wake()
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from vcc.cache.errors import DeviceError, UsageError

from . import native
from .config.environment import read_environment

_ABI = native.functions(
    {
        "vcc_device_open": "str i32 -> ptr",
        "vcc_device_close": "ptr",
        "vcc_device_info": "ptr -> str",
        "vcc_arena_open": "ptr u32 -> ptr",
        "vcc_arena_close": "ptr",
        "vcc_arena_allocate": "ptr u64 str -> u64",
        "vcc_arena_free": "ptr u64",
        "vcc_arena_sleep": "ptr i32 str",
        "vcc_arena_wake": "ptr str",
        "vcc_arena_discard": "ptr str",
        "vcc_arena_mark_filled": "ptr str",
        "vcc_arena_trim": "ptr -> u64",
        "vcc_arena_stats": "ptr -> str",
        "vcc_arena_available": "ptr -> u64",
        "vcc_arena_bind_torch": "ptr u32",
        "vcc_arena_thread_tag": "str -> str",
    }
)
_SEPARATOR = "\x1f"
TAGS = ("weights", "kv_cache", "workspace", "scratch", "buffers", "io", "default")
"""Tags with a rule of their own; any other is the user's."""


class MemoryShortage(DeviceError, RuntimeError):
    """Sleeping or waking failed; memory is as it was before, and it can be tried again."""

    id = "MEMORY"


@dataclass(frozen=True, slots=True)
class TagStats:
    """One tag.

    Args:
        live: bytes of allocations and of mapped parts of ranges.
        mapped: bytes of device memory held.
        asleep: its memory is taken away.
        filled: false when its contents were dropped and nobody has written them since.
    """

    live: int
    mapped: int
    asleep: bool
    filled: bool


@dataclass(frozen=True, slots=True)
class ArenaStats:
    """Counters of an arena; all sizes in bytes.

    Args:
        allocations, frees: calls.
        live, peak_live: allocations in use, and the most there were.
        mapped, peak_mapped: device memory held, and the most there was.
        reserved: addresses.
        host: host memory that holds the contents of sleeping tags.
        sleeps, wakes, discards, trims: calls that succeeded.
        tags: by name.
    """

    allocations: int
    frees: int
    live: int
    peak_live: int
    mapped: int
    peak_mapped: int
    reserved: int
    host: int
    sleeps: int
    wakes: int
    discards: int
    trims: int
    tags: Mapping[str, TagStats]


class Arena:
    """An arena on one device; may be shared between threads.

    Tags say what a sleep does. `weights` and a user's own tags keep their contents at level 1 and
    lose them at level 2; `kv_cache`, `workspace` and `scratch` always lose them; `buffers` and `io`
    never do. Addresses never change.

    Args:
        device: the device's number.
        enabled: false allocates plainly, and nothing can sleep; None asks
            VCC_USE_CUDA_MEMORY_POOL.

    Raises:
        DeviceError: no driver, no such device, or one without virtual memory.
    """

    def __init__(self, device: int = 0, *, enabled: bool | None = None) -> None:
        environment = read_environment()
        on = environment.use_cuda_memory_pool if enabled is None else enabled
        self.device = device
        self.device_handle: int = _ABI.vcc_device_open(environment.libcuda, device)
        """For functions of the C ABI that take a device."""
        try:
            self.handle: int = _ABI.vcc_arena_open(self.device_handle, int(on))
            """For functions of the C ABI that take an arena."""
        except DeviceError:
            _ABI.vcc_device_close(self.device_handle)
            raise
        self._pools: dict[str, Any] = {}

    def __enter__(self) -> Arena:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give all memory back; what tensors of torch still use stays until they are gone."""
        if not self.handle:
            return
        handle, self.handle = self.handle, 0
        if self._pools:
            self._pools.clear()  # torch gives back what no tensor uses
            _ABI.vcc_arena_bind_torch(handle, 0)
        _ABI.vcc_arena_close(handle)
        _ABI.vcc_device_close(self.device_handle)

    @contextmanager
    def tag(self, name: str) -> Iterator[Arena]:
        """Inside it, what this thread allocates gets the tag, CUDA tensors of torch included.

        torch counts when it was imported before. Do not capture a graph inside: give
        `torch_pool(name).id` to `torch.cuda.graph`.
        """
        before = _ABI.vcc_arena_thread_tag(name)
        try:
            with self._torch_context(name):
                yield self
        finally:
            _ABI.vcc_arena_thread_tag(before)

    def allocate(self, size: int, tag: str = "default") -> int:
        """Device memory without torch.

        Args:
            size: bytes.
            tag: its tag.

        Returns:
            An address, a multiple of 512.

        Raises:
            DeviceError: out of memory, or the tag sleeps.
        """
        return int(_ABI.vcc_arena_allocate(self.handle, size, tag))

    def free(self, address: int) -> None:
        """Free what `allocate` gave.

        Raises:
            UsageError: it was not given, or is free already.
        """
        _ABI.vcc_arena_free(self.handle, address)

    def sleep(self, level: int = 1, tags: Iterable[str] | None = None) -> None:
        """Take away the memory of tags; waits for the device.

        Args:
            level: 1 keeps contents in host memory, 2 keeps only buffers and io.
            tags: which; None for all.

        Raises:
            UsageError: no such tag, or none at all; so do `wake` and `discard`.
            MemoryShortage: nothing has changed.
        """
        with _as_shortage():
            _ABI.vcc_arena_sleep(self.handle, level, self._chosen(tags))

    def wake(self, tags: Iterable[str] | None = None) -> None:
        """Give memory and kept contents back, at the same addresses.

        Args:
            tags: which; None for all. All but weights, kv_cache and own tags come along.

        Raises:
            MemoryShortage: everything sleeps as before; free memory and try again.
        """
        with _as_shortage():
            _ABI.vcc_arena_wake(self.handle, self._chosen(tags))

    def discard(self, tags: Iterable[str]) -> None:
        """Take away the memory of tags and forget their contents, also of those that sleep.

        Args:
            tags: which; `wake` gives them memory again; replays wait for `mark_filled`.

        Raises:
            MemoryShortage: nothing has changed.
        """
        with _as_shortage():
            _ABI.vcc_arena_discard(self.handle, self._chosen(tags))

    def mark_filled(self, tag: str) -> None:
        """Say that a tag's contents were written again after they had been dropped."""
        _ABI.vcc_arena_mark_filled(self.handle, tag)

    def trim(self) -> int:
        """Give unused pages back to the device; waits for it. Returns bytes."""
        return int(_ABI.vcc_arena_trim(self.handle))

    def available(self) -> int:
        """Bytes of the device that nobody holds, this arena's unused pages included."""
        return int(_ABI.vcc_arena_available(self.handle))

    @property
    def stats(self) -> ArenaStats:
        """The counters of now."""
        found = json.loads(_ABI.vcc_arena_stats(self.handle))
        tags = {name: TagStats(**tag) for name, tag in found.pop("tags").items()}
        return ArenaStats(**found, tags=tags)

    def torch_pool(self, tag: str = "default") -> Any:
        """The `torch.cuda.MemPool` of a tag; imports torch.

        Args:
            tag: pools are per tag, as torch gives segments of a pool to any tensor. Use the pool
                inside `with arena.tag(...)` of the same tag.

        Raises:
            DeviceError: vcc was built without a compiler.
        """
        if tag not in self._pools:
            from .torch_shim.mem_pool import mem_pool

            _ABI.vcc_arena_bind_torch(self.handle, 1)
            self._pools[tag] = mem_pool(_library(), "vcc_torch_malloc", "vcc_torch_free")
        return self._pools[tag]

    def _chosen(self, tags: Iterable[str] | None) -> str:
        """Names for the C ABI, to which none mean all: an empty choice must not get there."""
        if tags is None:
            return ""
        names = [tags] if isinstance(tags, str) else list(tags)
        known = {*TAGS, *self.stats.tags}
        wrong = ", ".join(f'"{name}"' for name in names if name not in known)
        if wrong or not names:
            why = f"nothing was allocated as {wrong}" if wrong else "no tag was named"
            raise UsageError("cannot choose tags", why, f"known: {', '.join(sorted(known))}")
        return _SEPARATOR.join(names)

    def _torch_context(self, name: str) -> Any:
        if "torch" not in sys.modules:
            return nullcontext()
        from .torch_shim import mem_pool

        if not mem_pool.has_cuda():
            return nullcontext()
        return mem_pool.use_mem_pool(self.torch_pool(name), self.device)


def _library() -> Path:
    path = native.library("vcc_abi")
    if path is None:
        raise DeviceError("cannot use the memory arena", "vcc was built without a C++ compiler")
    return path


@contextmanager
def _as_shortage() -> Iterator[None]:
    try:
        yield
    except DeviceError as error:
        raise MemoryShortage(error.what, error.why, error.hint) from error
