"""Norm, rotation and KV write of query and key heads: what fuses, and what is left and why."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.fusions import Fused, Model, a_weight, on, operators, switched_on
from support.toys import rows, traced
from torch import Tensor

from vcc.engine.config.types import CompilationConfig
from vcc.engine.passes.base import Pass, PassContext
from vcc.engine.passes.prove import ALLOWED, prove
from vcc.engine.passes.qk_norm_rope import FUSE_QK_NORM_ROPE
from vcc.engine.passes.rope_kv_write import FUSE_ROPE_KV_WRITE
from vcc.engine.types import Traced

vcc = torch.ops.vcc
DIM, HEADS, KV = 8, 4, 2


def normed(x: Tensor, weight: Tensor, eps: float = 1e-6, offset: float = 0.0) -> Tensor:
    return vcc.rms_norm(x.unflatten(-1, (-1, DIM)), weight, eps, offset).flatten(-2)


def heads(model: Model, dtype: torch.dtype = torch.float32, **parts: Any) -> Traced:
    """A trace of `model(m, qkv, cos, sin, cache, slots)`."""
    arguments = {
        "qkv": (rows(6, (HEADS + 2 * KV) * DIM) * 3).to(dtype),
        "cos": rows(6, 3).cos(),
        "sin": rows(6, 3).sin(),
        "cache": torch.zeros(2, 4, 16, KV, DIM, dtype=dtype),
        "slots": torch.arange(6, dtype=torch.int32),
    }
    dynamic = {name: {0: "T"} for name in ("qkv", "cos", "sin", "slots")}
    return traced(model, arguments, dynamic, w=a_weight(DIM, dtype), **parts)


def parts(qkv: Tensor) -> tuple[Tensor, ...]:
    return qkv.split([HEADS * DIM, KV * DIM, KV * DIM], -1)


def both(m: Any, qkv: Tensor, cos: Tensor, sin: Tensor, **norm: Any) -> tuple[Tensor, Tensor]:
    q, k, _ = parts(qkv)
    q, k = normed(q, m.w, **norm), normed(k, m.w * 1.0, **norm)
    return vcc.rotary_embedding(q, k, cos, sin, DIM)


def run(model: Model, one: Pass = FUSE_QK_NORM_ROPE, **more: Any) -> Fused:
    return on(heads(model, **more), one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("eps", [1e-6, 1e-3])
def test_norms_of_heads_go_into_their_rotation(eps: float, dtype: torch.dtype) -> None:
    found = run(
        lambda m, qkv, cos, sin, cache, slots: both(m, qkv, cos, sin, eps=eps, offset=1.0),
        dtype=dtype,
    )
    assert found.fused == ["qk_norm_rope"]
    assert found.proof.exact
    assert found.proof.settled
    assert found.proof.report.saved.launches == 2
    assert found.proof.report.saved.bytes == 2 * dtype.itemsize * 6 * (HEADS + KV) * DIM


def of(q_norm: Any, k_norm: Any, dim: int = DIM) -> Model:
    def model(m: Any, qkv: Tensor, cos: Tensor, sin: Tensor, cache: Tensor, slots: Tensor) -> Any:
        q, k, _ = parts(qkv)
        return vcc.rotary_embedding(q_norm(m, q), k_norm(m, k), cos, sin, dim)

    return model


def plain(m: Any, x: Tensor) -> Tensor:
    return normed(x, m.w)


def read_elsewhere(
    m: Any, qkv: Tensor, cos: Tensor, sin: Tensor, cache: Tensor, slots: Tensor
) -> Any:
    q, k, _ = parts(qkv)
    q = normed(q, m.w)
    return (*vcc.rotary_embedding(q, normed(k, m.w), cos, sin, DIM), q * 2)


LEFT: dict[str, tuple[Model, str]] = {
    "epsilons that differ": (
        of(plain, lambda m, x: normed(x, m.w, eps=1e-5)),
        "eps is 1e-05 here and 1e-06 elsewhere",
    ),
    "offsets that differ": (
        of(plain, lambda m, x: normed(x, m.w, offset=1.0)),
        "weight_offset is 1.0 here and 0.0 elsewhere",
    ),
    "queries alone are normed": (of(plain, lambda m, x: x * 1.5), "where aten::view.default"),
    "heads of another size are rotated": (of(plain, plain, 16), "where heads of 16 are rotated"),
    "normed queries that others read": (read_elsewhere, "is also read by"),
}


@pytest.mark.parametrize("name", LEFT)
def test_other_heads_stay_with_their_reason(name: str) -> None:
    model, reason = LEFT[name]
    found = run(model)
    assert found.proof.report.matches == 0
    assert found.proof.exact
    assert any(reason in said for said in found.proof.report.refused), found.proof.report.refused


def write(m: Any, qkv: Tensor, cos: Tensor, sin: Tensor, cache: Tensor, slots: Tensor) -> Any:
    q, k, v = parts(qkv)
    q, k = vcc.rotary_embedding(q, k, cos, sin, DIM)
    out = torch.empty_like(q)
    vcc.kv_write(k, v, cache, slots)
    return out.copy_(q), q * 2


CUTS = PassContext(
    CompilationConfig(splitting_ops=("vcc::kv_write", "vcc::paged_attention", "vcc::rope_kv_write"))
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_rotation_goes_into_the_kv_write(dtype: torch.dtype) -> None:
    found = on(heads(write, dtype), FUSE_ROPE_KV_WRITE, context=CUTS)
    assert found.fused == ["rope_kv_write"]
    assert found.proof.exact  # the cache is compared too
    assert found.proof.settled
    assert found.proof.report.saved.launches == 1
    assert found.proof.report.saved.bytes == 2 * dtype.itemsize * 6 * KV * DIM


def keys_read(m: Any, qkv: Tensor, cos: Tensor, sin: Tensor, cache: Tensor, slots: Tensor) -> Any:
    q, k, v = parts(qkv)
    q, k = vcc.rotary_embedding(q, k, cos, sin, DIM)
    vcc.kv_write(k, v, cache, slots)
    return q * 2, k * 2


def early(m: Any, qkv: Tensor, cos: Tensor, sin: Tensor, cache: Tensor, slots: Tensor) -> Any:
    q, k, v = parts(qkv)
    q, k = vcc.rotary_embedding(q, k, cos, sin, DIM)
    doubled = q * 2
    vcc.kv_write(k, v, cache, slots)
    return doubled


def written(m: Any, qkv: Tensor, cos: Tensor, sin: Tensor, cache: Tensor, slots: Tensor) -> Any:
    q, k, v = parts(qkv)
    q, k = vcc.rotary_embedding(q, k, cos, sin, DIM)
    cache[0].add_(1)
    vcc.kv_write(k, v, cache, slots)
    return q * 2


KEPT: dict[str, tuple[Model, str]] = {
    "rotated keys that others read": (keys_read, "is also read by mul"),
    "queries that are read before the write": (early, "reads the rotated queries before"),
    "a write in between": (written, "add_ writes in place between its calls"),
    "keys that are not rotated": (
        lambda m, qkv, cos, sin, cache, slots: (
            p := parts(qkv), vcc.kv_write(p[1] * 2, p[2], cache, slots), p[0]
        )[2],
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_other_writes_stay_with_their_reason(name: str) -> None:
    model, reason = KEPT[name]
    found = on(heads(model), FUSE_ROPE_KV_WRITE, context=CUTS)
    assert found.proof.report.matches == 0
    assert "kv_write" in found.fused
    assert found.proof.exact
    refused = found.proof.report.refused
    assert any(reason in said for said in refused) if reason else refused == (), refused


def test_a_cut_at_one_of_the_two_writes_alone_is_a_reason() -> None:
    alone = PassContext(CompilationConfig(splitting_ops=("vcc::kv_write",)))
    found = on(heads(write), FUSE_ROPE_KV_WRITE, context=alone)
    (reason,) = found.proof.report.refused
    assert "name only one of kv_write and rope_kv_write" in reason


def test_normed_and_rotated_keys_are_not_rotated_again_by_the_write() -> None:
    """Where both could fuse, the norms go first: what is left of the rotation is in their call."""

    def model(m: Any, qkv: Tensor, cos: Tensor, sin: Tensor, cache: Tensor, slots: Tensor) -> Any:
        q, k = both(m, qkv, cos, sin)
        vcc.kv_write(k, parts(qkv)[2], cache, slots)
        return q * 2

    graph = heads(model)
    found = on(graph, FUSE_ROPE_KV_WRITE, before=[FUSE_QK_NORM_ROPE], context=CUTS)
    assert found.fused == ["qk_norm_rope", "kv_write"]
    assert found.proof.report.matches == 0


def test_both_passes_in_a_row_keep_results() -> None:
    graph = heads(write)
    proof = prove(graph, FUSE_QK_NORM_ROPE, switched_on(FUSE_QK_NORM_ROPE))
    assert proof.error <= ALLOWED
    assert "vcc::kv_write.default" in operators(graph)
