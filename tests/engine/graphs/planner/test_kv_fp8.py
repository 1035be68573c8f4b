"""A KV cache in fp8 in a node table: scales are pointers where a checkpoint has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.flow import ask, built
from support.fp8_checkpoints import make_fp8_checkpoint
from support.kv_fp8 import add_scales

from vcc.cache.errors import CompileError
from vcc.cache.store import Store
from vcc.engine.graphs.planner.memory import Located
from vcc.engine.graphs.planner.operators import operator_of
from vcc.engine.graphs.planner.types import Geometry
from vcc.engine.graphs.program import Call
from vcc.engine.graphs.stored_tables import read_tables
from vcc.engine.graphs.table.types import Role
from vcc.engine.ops.cuda import cubins
from vcc.engine.ops.register import load_ops
from vcc.engine.ops.triton.registry import Facts, Launches
from vcc.engine.torch_shim.profiles import PROFILES

FP8 = "float8_e4m3fn"


def located(name: str, dtype: str, *shape: int | str) -> Located:
    strides: list[int] = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * int(size) if isinstance(size, int) else strides[0])
    return Located(name, Geometry(dtype, shape, tuple(strides)))


def made(op: str, csrc: frozenset[str], *, scaled: bool, apart: int = 1) -> Launches:
    load_ops()
    rows = {name: located(name, "bfloat16", "T", 128) for name in ("k", "v")}
    cache = Located("kv", Geometry(FP8, (2, "K", 16, 2, 64), (["*", "K", 2048], 2048, 128, 64, 1)))
    values = {
        **rows,
        "q": located("q", "bfloat16", "T", 512),
        "out": located("out", "bfloat16", "T", 512),
        "cos": located("cos", "float32", "T", 32),
        "sin": located("sin", "float32", "T", 32),
        "kv": cache,
        "slots": located("slots", "int32", "T"),
        "scale": Located("scale", Geometry("float32", (2,), (apart,))),
    }
    inputs = {
        "kv_write": ["k", "v", "kv", "slots"],
        "rope_kv_write": ["q", "k", "v", "cos", "sin", "kv", "slots", "out", [64]],
    }[op]
    args = [*inputs, "scale"] if scaled else inputs
    call = Call("op", f"vcc::{op}.default", args, ["kv"])
    facts = Facts("bfloat16", PROFILES["sm_90"], 16, 64, csrc=csrc)
    return operator_of(call, values, facts).made


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("op", ["kv_write", "rope_kv_write"])
def test_writes_by_triton_take_the_scales_that_are_given(op: str, scaled: bool) -> None:
    (launch,) = made(op, frozenset(), scaled=scaled).launches
    assert dict(launch.kernel.parameters)["kv_cache"] == "*fp8e4nv"
    assert ("kv_scale" in launch.arguments) == scaled


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("op", ["kv_write", "rope_kv_write"])
def test_writes_by_csrc_take_them_or_a_null_pointer(op: str, scaled: bool) -> None:
    if why := cubins.missing("sm_90"):
        pytest.skip(why)
    (launch,) = made(op, frozenset({op}), scaled=scaled).launches
    assert launch.arguments["kv_scale"] == ("kv_scale" if scaled else 0)
    assert ("kv_scale" in launch.access) == scaled


@pytest.mark.slow
@pytest.mark.parametrize("ops", [["none"], ["all"], ["rotary_embedding:cuda"]], ids=str)
def test_a_table_of_a_checkpoint_with_scales(ops: list[str], tmp_path: Path) -> None:
    """The scales are weights in fp32, a block takes half the bytes of bf16."""
    if "cuda" in ops[0] and (why := cubins.missing("sm_90")):
        pytest.skip(why)
    directory = make_fp8_checkpoint(tmp_path / "model", "llama", "tensor-static")
    add_scales(directory, dict.fromkeys(range(3), (0.011, 0.007)))
    named = ops if ops[0] in ("none", "all") else ["none", f"+{ops[0]}"]
    asked = ask(directory, target="sm_90", dtype="bf16", config=json.dumps({"custom_ops": named}))
    loaded = built(asked, Store.open(tmp_path / "store")).loaded
    (table,) = read_tables(loaded).values()
    caches = [one for one in table.tensors if one.role is Role.CACHE]
    assert {one.dtype for one in caches} == {FP8}
    scales = [one for one in table.tensors if one.target.endswith("attn.kv_scale")]
    assert [(one.dtype, tuple(one.shape)) for one in scales] == [("float32", (2,))] * 3


@pytest.mark.parametrize("apart", [0, 2])
@pytest.mark.parametrize("csrc", [frozenset(), frozenset({"kv_write", "rope_kv_write"})])
@pytest.mark.parametrize("op", ["kv_write", "rope_kv_write"])
def test_scales_that_do_not_lie_side_by_side_are_refused(
    op: str, csrc: frozenset[str], apart: int
) -> None:
    """Kernels read the second one behind the first."""
    with pytest.raises(CompileError, match="kv_scale is not"):
        made(op, csrc, scaled=True, apart=apart)


def test_a_call_with_too_many_or_too_few_arguments_is_refused() -> None:
    """Only optional tensors at the end may be left out; nothing is dropped."""
    load_ops()
    values = {name: located(name, "bfloat16", "T", 128) for name in ("k", "v")}
    for args in (["k", "v", "kv"], ["k", "v", "kv", "slots", "scale", "more"]):
        call = Call("op", "vcc::kv_write.default", args, ["kv"])
        with pytest.raises(CompileError, match="is called with"):
            operator_of(call, values, Facts("bfloat16", PROFILES["sm_90"], 16, 64))
