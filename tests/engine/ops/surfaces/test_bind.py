"""Every row binds against the recorded signature of the release that it was written for."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vcc.engine.ops import backends, schemas
from vcc.engine.ops.backends import BACKENDS
from vcc.engine.ops.surfaces import aiter, bind, csrc, triton, xpu
from vcc.engine.ops.surfaces.bind import Parameter, Parameters
from vcc.engine.ops.surfaces.row import Arg, Const, Out, Row

FOLDER = Path(backends.__file__).parent / "signatures"
ROWS = {"aiter": aiter.ROWS, "xpu": xpu.ROWS}
FILES = sorted(path.name for path in FOLDER.glob("*.json"))
OURS = {op.name: bind.of_schema(op.schema) for op in schemas.OPS}
PAIRS = [(file, op) for file in FILES for op in ROWS[file.partition("-")[0]]]


def recorded(file: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / file).read_text())
    return found


def parameters(found: dict[str, Any]) -> Parameters:
    if "schema" in found:
        return bind.of_schema(found["schema"])
    return tuple(
        Parameter(name, bind.kind_of(kind), default=bool(default))
        for name, kind, *default in found["arguments"]
    )


def test_each_package_has_a_recorded_release_of_its_name_and_of_its_minimum() -> None:
    kinds = {file.partition("-")[0] for file in FILES}
    assert kinds == set(ROWS)
    for file in FILES:
        backend = {"aiter": "hip", "xpu": "xpu"}[file.partition("-")[0]]
        package = BACKENDS[backend].package
        assert package is not None
        assert recorded(file)["distribution"] == package.distribution
        assert recorded(file)["release"].startswith(package.minimum) or file == FILES[-1]


@pytest.mark.parametrize(("file", "op"), PAIRS)
def test_a_row_fits_the_release(file: str, op: str) -> None:
    row = ROWS[file.partition("-")[0]][op]
    symbols = recorded(file)["symbols"]
    assert row.symbol in symbols, f"{op}: {file} has no {row.symbol}"
    theirs = parameters(symbols[row.symbol])
    assert bind.misfit(row, theirs, OURS[op]) == ""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature(
        [
            inspect.Parameter(p.name, kind, default=None if p.default else inspect.Parameter.empty)
            for p in theirs
        ]
    )
    for call in row.calls:
        signature.bind(**dict.fromkeys(call, object()))


@pytest.mark.parametrize(("file", "op"), PAIRS)
def test_a_changed_signature_fails_by_the_operators_name(file: str, op: str) -> None:
    row = ROWS[file.partition("-")[0]][op]
    theirs = parameters(recorded(file)["symbols"][row.symbol])
    first = theirs[0]
    changes = (
        (replace(first, name="renamed"), *theirs[1:]),
        (*theirs, Parameter("wanted", "int")),
        (replace(first, kind="int"), *theirs[1:]),
        theirs[1:],
    )
    for changed in changes:
        assert bind.misfit(row, changed, OURS[op]).startswith(f"{op}: {row.symbol} ")
    assert bind.misfit(row, (*theirs, Parameter("new", "int", default=True)), OURS[op]) == ""


def test_what_a_package_writes_into_is_a_fresh_tensor_or_a_copy() -> None:
    theirs = bind.of_schema("f(Tensor! out, Tensor x) -> ()")
    ours = bind.of_schema("g(Tensor x) -> Tensor")
    assert bind.misfit(Row("g", "p::f", {"out": Out(0), "x": Arg("x")}), theirs, ours) == ""
    wrong = Row("g", "p::f", {"out": Arg("x"), "x": Arg("x")})
    assert bind.misfit(wrong, theirs, ours) == "g: p::f takes out to write into"
    wrong = Row("g", "p::f", {"out": Out(0), "x": Out(0)})
    assert bind.misfit(wrong, theirs, ours) == "g: p::f takes x to read only"


def test_an_argument_of_ours_that_nothing_carries_is_refused() -> None:
    theirs = bind.of_schema("f(Tensor! out, bool flag) -> ()")
    ours = bind.of_schema("g(Tensor x, float eps=0.0) -> Tensor")
    row = Row("g", "p::f", {"out": Out(0), "flag": Const(True)})
    assert bind.misfit(row, theirs, ours) == "g: p::f is not told x"
    row = Row("g", "p::f", {"out": Out(0), "flag": Arg("y")})
    assert "is given y, which the operator does not have" in bind.misfit(row, theirs, ours)


@pytest.mark.parametrize("op", sorted(triton.ROWS))
def test_our_triton_wrappers_take_the_operators_arguments(op: str) -> None:
    row = triton.ROWS[op]
    module, _, name = row.symbol.partition(":")
    assert name == op
    found = getattr(pytest.importorskip(module), name)
    assert bind.misfit(row, bind.of_function(found), OURS[op]) == ""


def test_every_operator_that_is_wrapped_has_a_row() -> None:
    for module in {row.symbol.partition(":")[0] for row in triton.ROWS.values()}:
        found = pytest.importorskip(module)
        own = {n for n, one in vars(found).items() if getattr(one, "__module__", "") == module}
        assert own & set(OURS) <= set(triton.ROWS)


@pytest.mark.parametrize("table", [csrc.CPU, csrc.CUDA], ids=["cpu", "cuda"])
def test_our_compiled_kernels_are_operators_of_ours(table: dict[str, Row]) -> None:
    assert set(table) <= set(OURS)
    assert all(row.op == op for op, row in table.items())


def test_the_cpu_table_is_what_the_compiled_library_registers() -> None:
    source = (Path(__file__).parents[4] / "csrc" / "ops" / "library.cpp").read_text()
    assert set(re.findall(r'm\.impl\("(\w+)"', source)) == set(csrc.CPU)


def test_scratch_memory_is_a_function_of_sizes() -> None:
    sizes = {"tokens": 4, "heads": 8, "head_dim": 80, "keys": 512}
    scratch = csrc.CPU["paged_attention"].workspace
    assert scratch(sizes) == 0
    assert scratch({**sizes, "keys": 1025}) == 4 * 4 * 8 * 3 * (80 + 2)
    assert scratch({**sizes, "keys": 513, "head_dim": 65}) == 4 * 4 * 8 * 2 * (80 + 2)
    assert csrc.CPU["rms_norm"].workspace(sizes) == 0
    source = (Path(__file__).parents[4] / "csrc" / "ops" / "cpu" / "kernels.h").read_text()
    assert f"kSplitKeys = {csrc.SPLIT_KEYS};" in source


def test_schemas_are_read_as_torch_writes_them() -> None:
    text = "f(Tensor(a!) x, Tensor!? y, (int, int)? shape=None, float e=1e-5, str k) -> (Tensor)"
    x, y, shape, e, k = bind.of_schema(text)
    assert (x.kind, x.written, x.optional) == ("Tensor", True, False)
    assert (y.kind, y.written, y.optional) == ("Tensor", True, True)
    assert (shape.name, shape.default) == ("shape", True)
    assert (e.kind, e.default, e.written) == ("float", True, False)
    assert (k.name, k.kind, k.default) == ("k", "str", False)
