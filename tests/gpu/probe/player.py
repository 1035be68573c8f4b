"""A torch-free player of node tables: memory, modules, and the launches of any step size."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from driver import Driver, KernelNode, Words
from steps import ALIGNMENT, BYTES, Tensor, dense, expand, place
from table import Refused, Table, parameter_bytes

from vcc.engine.graphs.expr import evaluate_all

Array = npt.NDArray[Any]
PACKING = 256
"""Every tensor starts at a multiple of this many bytes."""

NOT_A_NUMBER = 0xFF
"""A byte that, repeated, is NaN in bf16 and fp32: what was never written shows."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The launches of a step of fixed sizes; `words` keeps their parameters alive."""

    sizes: Mapping[str, int]
    nodes: tuple[KernelNode, ...]
    words: tuple[Words, ...]


class Player:
    """A table on a device.

    Args:
        driver: an open driver.
        table, blobs: as read and checked.
        blocks: KV blocks.
        shift: bytes allocated and left unused first, so that addresses differ.
        mark: told the name of each stage that is done.
    """

    def __init__(
        self,
        driver: Driver,
        table: Table,
        blobs: Mapping[str, bytes],
        *,
        blocks: int,
        shift: int = 0,
        mark: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.driver, self.table = driver, table
        limits = table.limits
        self.largest = {"T": limits["max_tokens"], "B": limits["max_seqs"], "K": blocks}
        self._functions = {d: self._function(d, blobs[d]) for d in table.kernels}
        mark("modules")
        self._at: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        if shift:
            driver.allocate(shift)
        self._place_step()
        mark("memory")

    def bind(self, arrays: Mapping[str, Array], names: Mapping[str, str]) -> int:
        """Put weights and constants on the device; returns bytes.

        Args:
            arrays: data by owner.
            names: owner of each value.
        """
        homes = self._block({name: array.nbytes for name, array in arrays.items()})
        for name, array in arrays.items():
            self.driver.write(homes[name], array)
        self._at |= {value: homes[owner] for value, owner in names.items()}
        return sum(array.nbytes for array in arrays.values())

    def prepare(self, tokens: int, seqs: int) -> Prepared:
        """The launches of a step of this many rows and sequences."""
        sizes = {**self.largest, "T": tokens, "B": seqs}
        nodes, kept = [], []
        for node in expand(self.table, sizes).nodes:
            kernel = self.table.kernels[node.kernel]
            kinds = [kind for _, kind in kernel.parameters] + ["*i8"] * kernel.null_pointers
            values = [self._address(w) if isinstance(w, Tensor) else w for w in node.words]
            words = Words(kinds, [*values, *[0] * kernel.null_pointers])
            block = (32 * kernel.warps, 1, 1)
            function = self._functions[node.kernel]
            nodes.append(KernelNode(function, *node.grid, *block, kernel.shared, words.array))
            kept.append(words)
        return Prepared(sizes, tuple(nodes), tuple(kept))

    def write(self, inputs: Mapping[str, Array]) -> None:
        """Copy a step's small inputs to their fixed places."""
        for name, array in inputs.items():
            self.driver.write(self._at[name], array)

    def launch(self, step: Prepared) -> None:
        """Plain launches of a step."""
        for node in step.nodes:
            self.driver.launch(node)

    def logits(self, seqs: int) -> Array:
        """The step's output [seqs, vocab] as 16-bit integers."""
        value = self._value(self.table.outputs[0])
        vocab = int(value.shape[1])
        data = self.driver.read(self._at[value.name], seqs * vocab * BYTES[value.dtype])
        return data.view(np.uint16).reshape(seqs, vocab)

    def poison(self) -> None:
        """Overwrite the workspace, outputs included."""
        self.driver.wait()
        self.driver.fill(self._workspace, NOT_A_NUMBER, self.workspace_bytes)

    def fill_caches(self) -> None:
        """Overwrite every KV cache, so that a read of what no step wrote shows."""
        self.driver.wait()
        self.driver.fill(self._caches, NOT_A_NUMBER, self.cache_bytes)

    def caches(self) -> Array:
        """All KV caches as bytes."""
        return self.driver.read(self._caches, self.cache_bytes)

    def _function(self, digest: str, cubin: bytes) -> Any:
        kernel = self.table.kernels[digest]
        function = self.driver.function(cubin, kernel.function, kernel.shared)
        wanted = parameter_bytes(kernel)
        if (found := self.driver.parameter_bytes(function)) != wanted:
            raise Refused(f"{kernel.function} takes {found} bytes of parameters, not {wanted}")
        return function.value

    def _place_step(self) -> None:
        inputs = [v for v in self.table.values if v.role == "input"]
        caches = {v.name: self._bytes(v) for v in inputs if v.name.startswith("kv_cache")}
        self._at |= self._block({v.name: self._bytes(v) for v in inputs if v.name not in caches})
        self._at |= (homes := self._block(caches))
        self._caches = min(homes.values())
        self.cache_bytes = max(homes[n] + size for n, size in caches.items()) - self._caches
        self.fill_caches()
        placement = place(self.table, self.largest)
        self.workspace_bytes = placement.size
        self._workspace = self.driver.allocate(placement.size)
        self._at |= {name: self._workspace + at for name, at in placement.offsets.items()}

    def _block(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """One allocation for several tensors."""
        offsets, at = {}, 0
        for name, size in sizes.items():
            offsets[name] = at
            at += -(-size // PACKING) * PACKING
        base = self.driver.allocate(at)
        return {name: base + offset for name, offset in offsets.items()}

    def _bytes(self, value: Any) -> int:
        shape = evaluate_all(value.shape, self.largest)
        return Tensor(value.name, value.dtype, shape, dense(shape)).bytes

    def _value(self, name: str) -> Any:
        return next(v for v in self.table.values if v.name == name)

    def _address(self, tensor: Tensor) -> int:
        address = self._at[tensor.home] + tensor.offset
        if address % ALIGNMENT:
            raise Refused(f"{tensor.home} lies at {address:#x}, which is not aligned")
        return address


class Clock:
    """Milliseconds between marks, from the start of the process."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = {"python_and_numpy": _since_process_start()}
        self._last = time.perf_counter()

    def mark(self, name: str) -> None:
        """Close the stage `name`."""
        now = time.perf_counter()
        self.stages[name] = self.stages.get(name, 0.0) + 1e3 * (now - self._last)
        self._last = now


def _since_process_start() -> float:
    with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:
        ticks = int(stat.read().rpartition(")")[2].split()[19])
        return 1e3 * (float(uptime.read().split()[0]) - ticks / 100)
