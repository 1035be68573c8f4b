"""What the memory and the sizes of a step are before anything is launched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vcc.cache.errors import CompileError
from vcc.engine.graphs.expr import Expr
from vcc.engine.graphs.planner.arithmetic import checked, dense, rebuilt
from vcc.engine.graphs.planner.memory import Located, Memory, tensor_bytes
from vcc.engine.graphs.planner.types import Geometry
from vcc.engine.graphs.program import Program, Value
from vcc.engine.graphs.table.types import RegionKind, Role, Symbol

CACHE = "kv_caches_"
"""Names of the inputs that are KV caches, one a layer."""

SIZES: Mapping[str, str] = {"input_ids": "T", "block_table": "B", "seq_lens": "B", f"{CACHE}0": "K"}
"""Step sizes by the input that carries each: tokens, sequences, KV blocks."""

PLAIN = ("T", "B")
"""What the sizes of a plain forward are called, in their order."""

ROWS = ("input_ids", "positions", "slot_mapping", "lora_slot")
"""Inputs with one entry a token: first, so that where they lie depends on T alone."""

SAMPLING: tuple[tuple[str, str, Role], ...] = (
    ("temperature", "float32", Role.INPUT),
    ("top_p", "float32", Role.INPUT),
    ("top_k", "int32", Role.INPUT),
    ("seed", "int64", Role.INPUT),
    ("request", "int32", Role.INPUT),
    ("step", "int32", Role.INPUT),
    ("active", "int32", Role.INPUT),
    ("token", "int32", Role.OUTPUT),
)
"""Tensors [B] of the loop's head and tail."""


@dataclass(frozen=True, slots=True)
class StepLimits:
    """The largest sizes of a decoder's step; `fewest` tokens are its range's lowest."""

    tokens: int
    seqs: int
    blocks: int
    fewest: int = 1


@dataclass(frozen=True, slots=True)
class Step:
    """Sizes, values and memory of a step.

    Attributes:
        symbols: sizes with their ranges.
        values: every value of the program, dense in memory of its own.
        memories: of what exists before the first launch: weights, caches, inputs.
        roles: of the values that live in them.
        targets: parameter or constant of each weight or constant.
    """

    symbols: tuple[Symbol, ...]
    values: Mapping[str, Located]
    memories: Mapping[str, Memory]
    roles: Mapping[str, Role]
    targets: Mapping[str, str]

    @property
    def highs(self) -> dict[str, int]:
        """The largest sizes by name."""
        return {symbol.name: symbol.high for symbol in self.symbols}


def step_of(program: Program, limits: StepLimits | None, tied: Mapping[str, str]) -> Step:
    """The step that a program is.

    Args:
        program: of the partition.
        limits: of a decoder's step; None for a plain module.
        tied: parameter to the parameter whose memory it shares.
    """
    names = _names(program, limits)
    sizes: dict[str, Expr] = {**names}
    sizes |= {symbol.name: symbol.low for symbol in program.symbols if symbol.low == symbol.high}
    values = {value.name: _located(value, sizes) for value in program.values}
    memories: dict[str, Memory] = {}
    roles: dict[str, Role] = {}
    homes = {value.target: value.name for value in program.values if value.role == "weight"}
    for value in sorted(program.values, key=lambda value: value.name not in ROWS):
        found = KINDS.get(value.role if not _is_cache(value) else "cache")
        if found is None:
            continue
        home = homes.get(tied.get(value.target, ""), value.name)
        if home != value.name:
            values[value.name] = Located(home, values[value.name].geometry)
        else:
            size = tensor_bytes(value.dtype, values[value.name].geometry.shape)
            memories[value.name] = Memory(value.name, found[0], checked(size))
        roles[value.name] = found[1]
    if limits is not None:
        for name, dtype, role in SAMPLING:
            values[name] = Located(name, Geometry(dtype, ("B",), (1,)))
            memories[name] = Memory(name, RegionKind.IO, tensor_bytes(dtype, ("B",)))
            roles[name] = role
    targets = {value.name: value.target for value in program.values}
    return Step(_symbols(program, limits, names), values, memories, roles, targets)


def sharing_weights(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Steps of several ranges, each with the weights and constants of all, in one order.

    Passes may leave a weight out of one range that another one reads: their tables share memory, so
    every table names all of it.
    """
    shared = [(name, one) for one in steps for name in one.roles if _is_weight(one.roles[name])]
    owners: dict[str, Step] = {}
    for name, one in shared:
        owners.setdefault(name, one)
    return tuple(_with_weights(one, owners) for one in steps)


def _is_weight(role: Role) -> bool:
    return role in (Role.WEIGHT, Role.CONSTANT)


def _with_weights(step: Step, owners: Mapping[str, Step]) -> Step:
    memories = {n: one.memories[n] for n, one in owners.items() if n in one.memories}
    kinds = {name: one.roles[name] for name, one in owners.items()}
    values = {name: one.values[name] for name, one in owners.items()}
    targets = {name: one.targets[name] for name, one in owners.items()}
    return replace(
        step,
        values={**values, **step.values},
        memories={**memories, **step.memories},
        roles={**kinds, **step.roles},
        targets={**targets, **step.targets},
    )


KINDS: Mapping[str, tuple[RegionKind, Role]] = {
    "weight": (RegionKind.WEIGHTS, Role.WEIGHT),
    "constant": (RegionKind.WEIGHTS, Role.CONSTANT),
    "cache": (RegionKind.KV_CACHE, Role.CACHE),
    "input": (RegionKind.IO, Role.INPUT),
}


def _is_cache(value: Value) -> bool:
    return value.role == "input" and value.name.startswith(CACHE)


def _names(program: Program, limits: StepLimits | None) -> dict[str, str]:
    if limits is None:
        return _plain_names(program)
    return {s.name: SIZES[s.source] for s in program.symbols}


def _plain_names(program: Program) -> dict[str, str]:
    """Names of a plain forward's sizes, which are those that a player is given with a step."""
    if len(program.symbols) > len(PLAIN):
        told = ", ".join(f"dimension {s.dim} of {s.source}" for s in program.symbols)
        raise CompileError(
            f"a forward of {len(program.symbols)} sizes that vary has no node table",
            f"{told}; a node table has {len(PLAIN)}",
            "fix one of them: --shape NAME=4x128",
        )
    return {s.name: name for s, name in zip(program.symbols, PLAIN, strict=False)}


def _symbols(
    program: Program, limits: StepLimits | None, names: Mapping[str, str]
) -> tuple[Symbol, ...]:
    if limits is None:
        return tuple(Symbol(names[s.name], s.low, s.high) for s in program.symbols)
    tokens = Symbol("T", limits.fewest, limits.tokens)
    return tokens, Symbol("B", 1, limits.seqs), Symbol("K", 1, limits.blocks)


def _located(value: Value, sizes: Mapping[str, Expr]) -> Located:
    shape: tuple[Expr, ...] = tuple(rebuilt(size, sizes) for size in value.shape)
    return Located(value.name, Geometry(value.dtype, shape, dense(shape)))
