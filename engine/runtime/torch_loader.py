"""TorchLoader: compiled pieces on the CPU, with torch and nothing of its compilers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import torch

from vcc.cache.errors import IntegrityError
from vcc.cache.loaded import Loaded
from vcc.engine.graphs.dtypes import DTYPES
from vcc.engine.graphs.program import Program, Value
from vcc.engine.models.bindings import parameter_dtypes
from vcc.engine.models.bindings import parse as parse_binding
from vcc.engine.models.weights import load_weights
from vcc.engine.ops.register import load_ops, operator
from vcc.engine.runtime.adapted import adapting, stacks_of
from vcc.engine.runtime.assemble import assemble
from vcc.engine.runtime.elf import check_library
from vcc.engine.runtime.golden import check_goldens
from vcc.engine.runtime.op_list import open_op_list
from vcc.engine.runtime.range_step import TOKENS, size_kind
from vcc.engine.runtime.ranges import IsRanged, RangeProgram, read_programs
from vcc.engine.runtime.settings import Boot
from vcc.engine.runtime.step import ModelRunner
from vcc.engine.torch_shim.aoti_runner import RunPiece, open_piece

PIECE, LIBRARY, LIST = "piece/", ".so", ".ops"
"""Names of the blobs of pieces: compiled code, or an operator list."""


@dataclass(frozen=True, slots=True)
class OpenedProgram:
    """Step programs, one for each range of sizes, with everything they name.

    Tensors are known by value, pieces by id, ops by name.
    """

    programs: tuple[RangeProgram, ...]
    given: Mapping[str, torch.Tensor]
    pieces: Mapping[str, RunPiece]
    ops: Mapping[str, Any]

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        """The weights by parameter name."""
        values = (value for one in self.programs for value in one.program.of_role("weight"))
        return {value.target: self.given[value.name] for value in values}


def load_pieces(boot: Boot) -> ModelRunner:
    """A runner over the artifact's pieces; errors as `open_program`."""
    found = open_program(boot, _weights, lambda symbol: size_kind(symbol) == TOKENS)
    with boot.ledger.phase("pieces"):
        parts = (found.programs, found.given, found.pieces, found.ops)
        adapters = adapting(boot, found.parameters)
        return assemble(*parts, boot.source.spec, boot.settings, adapters=adapters)


def open_program(
    boot: Boot,
    weights: Callable[[Boot, Program], Mapping[str, torch.Tensor]],
    is_ranged: IsRanged,
) -> OpenedProgram:
    """Read and open the compiled pieces of an artifact, and check their goldens.

    Args:
        boot: the artifact and the accounts.
        weights: the weight tensors of a program by value name.
        is_ranged: picks the size that ranges are about among a program's symbols.

    Raises:
        Damaged, IntegrityError: a blob or the program is not what was published.
        ModelError: the weights do not fit.
    """
    with boot.ledger.phase("verify"):
        programs = read_programs(boot.loaded, is_ranged)
        whole = _whole([one.program for one in programs])
    with boot.ledger.phase("weights"):
        given = {**weights(boot, whole), **constants_of_artifact(boot, whole)}
    with boot.ledger.phase("pieces"):
        load_operators(boot)
        pieces = open_pieces(boot.loaded)
        ops = declared_operators(boot, whole)
        boot.counters.add("restores", len(pieces))
    with boot.ledger.phase("golden"):
        check_goldens(boot, whole, pieces)
    return OpenedProgram(programs, given, pieces, ops)


def _whole(programs: Sequence[Program]) -> Program:
    """All programs as one, to look at: every weight and constant once, the calls of all of them."""
    wanted: dict[str, Value] = {}
    for program in programs:
        for value in (*program.of_role("weight"), *program.of_role("constant")):
            known = wanted.setdefault(value.name, value)
            if known != value:
                raise IntegrityError(f"two programs of the artifact disagree about {value.name}")
    calls = [call for program in programs for call in program.calls]
    return msgspec.structs.replace(programs[0], values=list(wanted.values()), calls=calls)


def _weights(boot: Boot, program: Program) -> dict[str, torch.Tensor]:
    values = program.of_role("weight")
    loaded = parameters(boot)
    if missing := [v.target for v in values if v.target not in loaded]:
        raise IntegrityError(f"the artifact has no binding for {missing[0]}")
    return {value.name: loaded[value.target] for value in values}


def parameters(boot: Boot) -> dict[str, torch.Tensor]:
    """The model's parameters by name, through the artifact's bindings; told to the events.

    Raises:
        IntegrityError: the manifest has no bindings or dtype, or bindings that cannot be read.
        ModelError: the checkpoint does not have what a binding names.
    """
    texts = boot.loaded.manifest.info.get("bindings")
    if not isinstance(texts, dict):
        raise IntegrityError("the manifest has no bindings")
    if not all(isinstance(text, str) for text in texts.values()):
        raise IntegrityError("the manifest's bindings are refused", "one of them is not text")
    bindings = {name: parse_binding(text) for name, text in texts.items()}
    dtype = boot.settings.model.dtype
    if dtype is None:
        raise IntegrityError("the manifest has no dtype")
    exact = {name: DTYPES[one] for name, one in parameter_dtypes(boot.source.spec).items()}
    of = (bindings, boot.source.tensors, DTYPES[dtype.torch_name], exact)
    weights, ledger = load_weights(*of)
    boot.events.note(
        f"weights: {ledger.bytes_viewed} bytes viewed in place, {ledger.bytes_copied} copied"
    )
    return weights | stacks_of(boot)


def constants_of_artifact(boot: Boot, program: Program) -> dict[str, torch.Tensor]:
    """The program's constants by value name, from their verified blobs."""
    table: Mapping[str, Any] = boot.loaded.manifest.info.get("constants", {})
    return {
        value.name: _constant(boot, value.target, table[value.target])
        for value in program.of_role("constant")
    }


def _constant(boot: Boot, name: str, entry: Mapping[str, Any]) -> torch.Tensor:
    data, dtype = bytearray(boot.loaded.read(f"constant/{name}")), DTYPES[entry["dtype"]]
    if not data:  # which frombuffer refuses
        return torch.empty(entry["shape"], dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).view(entry["shape"])


def declared_operators(boot: Boot, program: Program) -> dict[str, Any]:
    """The program's splitting ops by name.

    Raises:
        IntegrityError: it calls an operator that the artifact's configuration does not declare.
    """
    declared = frozenset(boot.settings.compilation.splitting_ops or ())
    names = dict.fromkeys(call.target for call in program.calls if call.kind == "op")
    for name in names:
        if not declared & {name, name.split(".")[0]}:
            raise IntegrityError(
                f"the step program calls {name[:60]}",
                "the artifact does not declare it as a splitting op",
                "rebuild it: vcc compile",
            )
    return {name: operator(name) for name in names}


def load_operators(boot: Boot) -> None:
    """Load the operators; plain torch in place of the compiled kernels is said once."""
    backend = load_ops()
    if backend.name == "native":
        boot.events.note(f"operators run in plain torch: {backend.reason}")


def open_pieces(loaded: Loaded) -> dict[str, RunPiece]:
    """Every piece of the artifact, opened from verified bytes, by id.

    Raises:
        ElfPolicy: a library asks for more than a piece may; none has been opened then.
        IntegrityError: an operator list is refused.
    """
    names = [name for name in loaded.manifest.blobs if name.startswith(PIECE)]
    lists = {name: loaded.read(name) for name in names if name.endswith(LIST)}
    with loaded.expose([name for name in names if name not in lists]) as paths:
        libraries = {name: path for name, path in paths.items() if name.endswith(LIBRARY)}
        for name, path in libraries.items():
            check_library(name, path.read_bytes())  # of the sealed copy that is opened
        opened = {name: open_piece(path) for name, path in libraries.items()}
    opened |= {name: open_op_list(data) for name, data in lists.items()}
    return {piece_of(name): run for name, run in opened.items()}


def piece_of(name: str) -> str:
    """The id of the piece whose code a blob holds."""
    return name.removeprefix(PIECE).removesuffix(LIBRARY).removesuffix(LIST)
