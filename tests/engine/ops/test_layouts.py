"""Fakes say the shapes, types and strides that kernels give, for inputs of any accepted layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.library import opcheck

from vcc.engine.ops import schemas
from vcc.engine.ops.surfaces import csrc
from vcc.engine.ops.surfaces.row import Strides

CHECKS = ("test_schema", "test_faketensor")
ROWS: dict[str, Callable[[Tensor], Tensor]] = {
    "dense": lambda x: x,
    "wider rows": lambda x: torch.cat((x, x), -1)[..., : x.shape[-1]],
    "every other row": lambda x: x.repeat_interleave(2, 0)[::2],
    "no rows": lambda x: x[:0],
    "one row": lambda x: x[1:2],
}


def calls(rows: Callable[[Tensor], Tensor]) -> dict[str, tuple[Any, ...]]:
    x, y, weight = rows(torch.randn(6, 32)), rows(torch.randn(6, 32)), torch.randn(32)
    angles = rows(torch.randn(6, 8))
    scale = torch.tensor(0.1)
    return {
        "rms_norm": (x, weight, 1e-6, 1.0),
        "fused_add_rms_norm": (x, y, weight, 1e-6),
        "silu_and_mul": (x,),
        "gelu_and_mul": (x, True),
        "rotary_embedding": (x, y, angles.cos(), angles.sin(), 16),
        "qk_norm_rope": (x, y, weight[:16], weight[16:], angles.cos(), angles.sin(), 16, 1e-6),
        "rms_norm_quant": (x, weight, scale, 1e-6),
        "silu_and_mul_quant": (x, scale),
        "topk_softmax": (x, 3, True),
    }


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("op", calls(lambda x: x))
def test_a_fake_is_what_the_kernel_gives(ops: Any, op: str, rows: str) -> None:
    arguments = calls(ROWS[rows])[op]
    opcheck(getattr(ops, op).default, arguments, test_utils=CHECKS)
    fake = next(one for one in schemas.OPS if one.name == op).meta(*arguments)
    real = getattr(ops, op)(*arguments)
    pairs = zip(*((one if isinstance(one, tuple) else (one,)) for one in (fake, real)), strict=True)
    for a, b in pairs:
        assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())


@pytest.mark.parametrize("op", calls(lambda x: x))
def test_a_layout_changes_no_result(ops: Any, op: str) -> None:
    run = getattr(ops, op)
    for rows in ("wider rows", "every other row"):
        arguments = calls(ROWS[rows])[op]
        dense = [a.contiguous() if isinstance(a, Tensor) else a for a in arguments]
        for a, b in zip(_many(run(*arguments)), _many(run(*dense)), strict=True):
            assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def _many(found: Any) -> tuple[Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


def test_rows_of_the_cpu_table_take_any_row_stride() -> None:
    assert {row.strides for row in csrc.CPU.values()} == {Strides.ROWS}


def test_what_a_schema_says_is_written_is_what_a_call_writes(ops: Any) -> None:
    written = {one.name for one in schemas.OPS if "!" in one.arguments}
    for op, arguments in calls(lambda x: x).items():
        assert op not in written
        before = [a.clone() if isinstance(a, Tensor) else a for a in arguments]
        getattr(ops, op)(*arguments)
        for a, b in zip(arguments, before, strict=True):
            assert not isinstance(a, Tensor) or torch.equal(a, b)
