"""The probe's node table: its JSON form, and the check on reading it.

Data only, free of torch and Triton. Issue 2 replaces the JSON by the binary form of the design; the
things named here (kernels by digest, arguments by name, sizes as expressions, gemm and splitting
nodes) are what it must carry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from vcc.engine.graphs.expr import Expr, check
from vcc.engine.graphs.program import Symbol, Value

FORMAT = "vcc node table probe 1"
TABLE = "table.json"


class Refused(ValueError):
    """A table that does not hold together: names the part."""


class Kernel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One function of a cubin.

    Attributes:
        cubin: SHA-256 of the file `<cubin>.cubin`; the kernel's key, since names repeat.
        function: its symbol in the cubin.
        warps: 32-thread warps of a block, which has no other dimension.
        shared: bytes of dynamic shared memory.
        parameters: (name, Triton type such as `*bf16`, `i32`, `i64`) in launch order.
        null_pointers: pointers that follow and are null (Triton's unused scratch).
    """

    cubin: str
    function: str
    warps: int
    shared: int
    parameters: list[tuple[str, str]]
    null_pointers: int


NUMBERS = {"i32": 4, "i64": 8}
"""Bytes of the parameters that are not pointers, by Triton type."""


def parameter_bytes(kernel: Kernel) -> int:
    """Bytes of a kernel's parameter block, each parameter at its natural alignment.

    Raises:
        Refused: a parameter of a type that a table cannot bind.
    """
    at = 0
    for name, kind in (*kernel.parameters, *[("scratch", "*i8")] * kernel.null_pointers):
        width = 8 if kind.startswith("*") else NUMBERS.get(kind, 0)
        if not width:
            raise Refused(f"{kernel.function}: parameter {name} is {kind}")
        at = -(-at // width) * width + width
    return at


class Buffer(msgspec.Struct, frozen=True, tag="buffer", forbid_unknown_fields=True):
    """An uninitialised tensor of a piece, dense by its strides."""

    name: str
    dtype: str
    shape: list[Expr]
    stride: list[Expr]


class View(msgspec.Struct, frozen=True, tag="view", forbid_unknown_fields=True):
    """The memory of tensor `of` under another geometry; `offset` in elements."""

    name: str
    of: str
    shape: list[Expr]
    stride: list[Expr]
    offset: Expr


class Launch(msgspec.Struct, frozen=True, tag="launch", forbid_unknown_fields=True):
    """One kernel launch: `arguments` maps each parameter to a tensor's name or an expression."""

    kernel: str
    grid: tuple[Expr, Expr, Expr]
    arguments: dict[str, Any]


class Gemm(msgspec.Struct, frozen=True, tag="gemm", forbid_unknown_fields=True):
    """d [rows, n] = a [rows, k] @ w [n, k].T (+ c); `c` is a tensor's name or null."""

    a: str
    w: str
    c: str | None
    d: str
    rows: Expr
    n: int
    k: int


Node = Buffer | View | Launch | Gemm


class Piece(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One unique piece: its tensors by position, its sizes as (argument, dimension), its nodes."""

    arguments: list[str]
    sizes: dict[str, tuple[int, int]]
    nodes: list[Node]


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call of the step: a piece by identity with values by position, or a splitting op."""

    target: str
    values: list[str]


class SplittingOp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a splitting op is launched: `arguments` name the op's own arguments or step sizes."""

    tensors: list[str]
    launch: Launch


class GemmVariant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kernel for gemm nodes of at most `most_rows` rows (0: any), with its tiles."""

    most_rows: int
    has_c: bool
    tile_n: int
    tile_rows: int
    tile_k: int
    kernel: str


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole step for one target, symbolic in its sizes."""

    format: str
    target: str
    limits: dict[str, int]
    symbols: list[Symbol]
    values: list[Value]
    bindings: dict[str, str]
    constants: dict[str, str]
    kernels: dict[str, Kernel]
    pieces: dict[str, Piece]
    ops: dict[str, SplittingOp]
    gemms: list[GemmVariant]
    calls: list[Call]
    outputs: list[str]


def write(table: Table, folder: Path, blobs: Mapping[str, bytes]) -> None:
    """Write the table and its blobs (file name to bytes) into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in blobs.items():
        (folder / name).write_bytes(data)
    text = msgspec.json.format(msgspec.json.encode(table, order="deterministic"), indent=1)
    (folder / TABLE).write_bytes(text)


def read(folder: Path) -> tuple[Table, dict[str, bytes]]:
    """Read a table with its cubins and constants, and check both.

    Returns:
        The table, and the blobs by digest.

    Raises:
        Refused: a digest that differs, or an inconsistent table.
    """
    try:
        table = msgspec.json.decode((folder / TABLE).read_bytes(), type=Table)
    except msgspec.MsgspecError as error:
        raise Refused(f"not a node table: {error}") from None
    if table.format != FORMAT:
        raise Refused(f"format {table.format!r}, not {FORMAT!r}")
    files = {k.cubin: f"{k.cubin}.cubin" for k in table.kernels.values()}
    files |= {digest: f"{digest}.bin" for digest in table.constants.values()}
    blobs = {digest: (folder / name).read_bytes() for digest, name in files.items()}
    for digest, data in blobs.items():
        if hashlib.sha256(data).hexdigest() != digest:
            raise Refused(f"{files[digest]} is damaged: its digest differs")
    check_table(table)
    return table, blobs


def check_table(table: Table) -> None:
    """Refuse a table in which a name leads nowhere or an argument is missing.

    Raises:
        Refused: names the piece, the kernel or the value.
    """
    values = {value.name for value in table.values}
    for identity, piece in table.pieces.items():
        _check_nodes(table, f"piece {identity[:8]}", piece.nodes, piece.arguments, piece.sizes)
    for name, op in table.ops.items():
        steps = [symbol.name for symbol in table.symbols]
        _check_nodes(table, f"op {name}", [op.launch], op.tensors, steps)
    for call in table.calls:
        known = table.pieces.get(call.target) or table.ops.get(call.target)
        wanted = known.arguments if isinstance(known, Piece) else known.tensors if known else []
        if known is None or len(wanted) != len(call.values) or not values >= set(call.values):
            raise Refused(f"call of {call.target[:24]}: unknown target or values")
    for variant in table.gemms:
        if variant.kernel not in table.kernels:
            raise Refused(f"gemm variant names kernel {variant.kernel[:8]}, which is not there")
    if not values >= set(table.outputs):
        raise Refused("an output names no value")


def _check_nodes(
    table: Table, where: str, nodes: Sequence[Node], arguments: Sequence[str], sizes: Any
) -> None:
    tensors, symbols = set(arguments), frozenset(sizes)
    for node in nodes:
        used, exprs = _uses(table, where, node)
        if unknown := sorted(set(used) - tensors):
            raise Refused(f"{where}: no tensor is called {unknown[0]!r}")
        for expr in exprs:
            check(expr, symbols)
        if isinstance(node, (Buffer, View)):
            tensors.add(node.name)


def _uses(table: Table, where: str, node: Node) -> tuple[list[str], list[Expr]]:
    """The tensors and the expressions that a node names."""
    if isinstance(node, Buffer):
        return [], [*node.shape, *node.stride]
    if isinstance(node, View):
        return [node.of], [*node.shape, *node.stride, node.offset]
    if isinstance(node, Gemm):
        return [t for t in (node.a, node.w, node.c, node.d) if t is not None], [node.rows]
    kernel = table.kernels.get(node.kernel)
    if kernel is None:
        raise Refused(f"{where}: no kernel {node.kernel[:8]}")
    names = [name for name, _ in kernel.parameters]
    if set(names) != set(node.arguments):
        odd = sorted(set(names) ^ set(node.arguments))
        raise Refused(f"{where}: {kernel.function} is not given exactly {names}: {odd[0]!r}")
    pointers = [name for name, kind in kernel.parameters if kind.startswith("*")]
    numbers = [node.arguments[name] for name in names if name not in pointers]
    return [node.arguments[name] for name in pointers], [*node.grid, *numbers]
