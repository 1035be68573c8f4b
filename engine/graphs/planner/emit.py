"""From a flat step to the node table: regions laid out, kernels numbered, parameters in bytes."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vcc.cache.errors import CompileError
from vcc.engine.graphs.expr import Expr, most
from vcc.engine.graphs.planner.arithmetic import add, checked
from vcc.engine.graphs.planner.flat import FlatLaunch, FlatNode, FlatProduct, Pointer
from vcc.engine.graphs.planner.kernels import Key
from vcc.engine.graphs.planner.memory import Memory
from vcc.engine.graphs.planner.scaled import BLOCKS, SPREAD, variants_of
from vcc.engine.graphs.table.layout import Family
from vcc.engine.graphs.table.types import (
    NONE,
    Gemm,
    Kernel,
    Node,
    NodeKind,
    Param,
    ParamKind,
    RegionKind,
    Variant,
)
from vcc.engine.ops.triton.gemm import GemmVariant
from vcc.engine.ops.triton.specs import KernelSpec
from vcc.engine.torch_shim.triton_build import CompiledKernel

NUMBERS: Mapping[str, ParamKind] = {
    "i32": ParamKind.I32,
    "i64": ParamKind.I64,
    "fp32": ParamKind.F32,
    "fp64": ParamKind.F64,
}
FLOATS: Mapping[ParamKind, tuple[str, str]] = {
    ParamKind.F32: ("<f", "<I"),
    ParamKind.F64: ("<d", "<Q"),
}
MOST: Mapping[ParamKind, int] = {ParamKind.I32: 2**31 - 1, ParamKind.I64: 2**63 - 1}
MOST_GRID = (2**31 - 1, 65535, 65535)
OPERANDS: Mapping[str, int] = {"a": 0, "w": 8, "c": 16, "d": 24, "a_scale": 32, "w_scale": 40}


@dataclass(frozen=True, slots=True)
class Places:
    """Where every memory lies: its region by index, and its first byte there."""

    regions: Mapping[RegionKind, int]
    memories: Mapping[str, Memory]
    offsets: Mapping[str, Expr]

    def pointer(self, pointer: Pointer, at: int) -> Param:
        """The parameter at byte `at` of a block."""
        region = self.regions[self.memories[pointer.memory].kind]
        offset = checked(add(self.offsets[pointer.memory], pointer.offset))
        return Param(ParamKind.POINTER, pointer.access, at, region, offset)


class Emitter:
    """Numbers kernels and products in order of appearance while nodes are written.

    Args:
        places: where memory lies.
        compiled: own kernels by the key of their spec.
        highs: the largest sizes.
    """

    def __init__(
        self, places: Places, compiled: Mapping[Key, CompiledKernel], highs: Mapping[str, int]
    ) -> None:
        self._places, self._compiled, self._highs = places, compiled, highs
        self.kernels: dict[Kernel, int] = {}
        self.cubins: dict[str, CompiledKernel] = {}
        self.gemms: dict[tuple[object, ...], int] = {}
        self._products: list[Gemm] = []
        self._scaled: dict[Family, CompiledKernel] = {}

    @property
    def products(self) -> tuple[Gemm, ...]:
        """The gemms so far."""
        return tuple(self._products)

    def node(self, node: FlatNode) -> Node:
        """The table's node."""
        if isinstance(node, FlatProduct):
            node = self._by_row(node)
            own = self._other_kernel(node)
            return self._product(node) if own is None else self.node(own)
        kernel = self._resolved(node.kernel)
        self._check_grid(node, kernel)
        params = tuple(
            self._param(kernel, name, kind, at, node.arguments[name])
            for (name, kind), at in zip(kernel.parameters, kernel.offsets().values(), strict=True)
        )
        return Node(NodeKind.KERNEL, node.when, self.kernel(kernel), node.grid, params)

    def kernel(self, kernel: CompiledKernel) -> int:
        """The index of a kernel, which is added when it is new."""
        self.cubins.setdefault(kernel.digest, kernel)
        entry = Kernel(
            kernel.digest,
            kernel.function,
            (kernel.warps * 32, 1, 1),
            kernel.shared,
            kernel.param_bytes,
        )
        return self.kernels.setdefault(entry, len(self.kernels))

    def variant(self, one: GemmVariant, n: int, k: int) -> Variant:
        """A table's variant; n and k stand for what a variant leaves open."""
        reduce = NONE if one.reduce is None else self._spec(one.reduce)
        return Variant(
            n=n,
            k=k,
            dtype=one.dtype,
            kernel=self._spec(one.kernel),
            tile_rows=one.tile_rows,
            tile_n=one.tile_n,
            split_k=one.split_k,
            max_rows=one.max_rows,
            has_c=one.has_c,
            reduce_kernel=reduce,
        )

    def _spec(self, spec: KernelSpec) -> int:
        return self.kernel(self._resolved(spec))

    def _resolved(self, kernel: CompiledKernel | KernelSpec) -> CompiledKernel:
        return self._compiled[kernel.key()] if isinstance(kernel, KernelSpec) else kernel

    def scaled(self) -> tuple[Variant, ...]:
        """The variants of scaled products."""
        return tuple(
            variant
            for family, kernel in self._scaled.items()
            for variant in variants_of(kernel, self.kernel(kernel), family, self._spread(family))
        )

    def _spread(self, family: Family) -> int:
        return self._spec(SPREAD) if family[-1] == BLOCKS else NONE

    def _by_row(self, node: FlatProduct) -> FlatProduct:
        """One scale of a that stands once for each row is one a row."""
        often = node.repeated
        if node.scales != "mixed" or not isinstance(often, int):
            return node
        enough = most(node.m, self._highs) <= often
        return replace(node, scales="rows") if enough else node

    def _other_kernel(self, node: FlatProduct) -> FlatLaunch | None:
        """A scaled product whose kernel is another than that of its equals stays a launch."""
        if node.launch is None:
            return None
        kernel = self._resolved(node.launch.kernel)
        first = self._scaled.setdefault(node.family, kernel)
        return None if first.digest == kernel.digest else node.launch

    def _product(self, node: FlatProduct) -> Node:
        key = (repr(node.m), *node.family)
        if key not in self.gemms:
            self.gemms[key] = len(self._products)
            self._products.append(Gemm(node.m, *node.family))
        params = tuple(self._places.pointer(p, OPERANDS[n]) for n, p in node.operands.items())
        return Node(NodeKind.GEMM, target=self.gemms[key], params=params)

    def _param(
        self,
        kernel: CompiledKernel,
        name: str,
        kind: str,
        at: int,
        value: Pointer | Expr | float,
    ) -> Param:
        if isinstance(value, Pointer):
            return self._places.pointer(value, at)
        number = NUMBERS[kind]
        if number in FLOATS:
            packed, bits = FLOATS[number]
            (word,) = struct.unpack(bits, struct.pack(packed, value))
            return Param(number, 0, at, value=word)
        if most(value, self._highs) > MOST[number]:
            raise CompileError(
                f"argument {name} of kernel {kernel.function} does not fit {kind}",
                f"{value!r:.80} reaches {most(value, self._highs)} at some size",
                "lower max_num_batched_tokens",
            )
        return Param(number, 0, at, value=value)

    def _check_grid(self, node: FlatLaunch, kernel: CompiledKernel) -> None:
        sizes = [most(size, self._highs) for size in node.grid]
        if any(size > limit for size, limit in zip(sizes, MOST_GRID, strict=True)):
            raise CompileError(
                f"kernel {kernel.function} would be launched as {sizes} blocks",
                f"at most {list(MOST_GRID)} are possible",
                "lower max_num_batched_tokens",
            )


def variants_for(
    emitter: Emitter, gemms: Sequence[Gemm], variants: Sequence[GemmVariant]
) -> tuple[Variant, ...]:
    """The table's variants: for each shape those that compute it, in order."""
    found: list[Variant] = []
    plain = (g for g in gemms if not g.scales)
    for n, k, dtype, has_c in dict.fromkeys((g.n, g.k, g.dtype, g.has_c) for g in plain):
        for one in variants:
            if one.dtype == dtype and one.matches(n, k, has_c, 0):
                found.append(emitter.variant(one, n, k))
                if one.max_rows == 0:
                    break
    return (*found, *emitter.scaled())
