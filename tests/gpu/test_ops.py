"""Every operator of csrc/kernels on a device: each back end, type, width and layout, by the rule.

`csrc` is `torch.ops.vcc` on CUDA tensors, `triton` the kernels that pieces are traced with,
`native` plain torch, which the other two are held against; the reference is plain torch in fp32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from support.cuda_cases import (
    NATIVE,
    WRITTEN,
    Case,
    gate_cases,
    many_cases,
    nan_cases,
    norm_cases,
    results,
    rope_cases,
    router_cases,
)
from support.op_rule import judge

from vcc.engine.ops.cuda import cubins, eager
from vcc.engine.ops.cuda.table import BUILDERS
from vcc.engine.ops.register import load_ops

pytestmark = pytest.mark.gpu

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
FAMILIES: Mapping[str, Callable[[torch.dtype], Iterator[Case]]] = {
    "norms": norm_cases,
    "gates": gate_cases,
    "ropes": rope_cases,
    "many": many_cases,
    "routers": router_cases,
    "nan": nan_cases,
}


COMPILED = ("100 ", "256 ", "1024 ", "1408 ", "4+2 ", "2+1 ", "2 of 8 ", "4 of 60 ")
"""Cases that Triton is tried on: it compiles a kernel for each width, a second each."""


def _csrc(op: str) -> Callable[..., Any]:
    """`torch.ops.vcc` with the cubins of this install; skips where there are none."""
    backend = load_ops()
    if backend.name != "cpu":
        pytest.skip(backend.reason)
    major, minor = torch.cuda.get_device_capability()
    if why := cubins.missing(f"sm_{major}{minor}"):
        pytest.skip(why)
    assert eager.usable(f"sm_{major}{minor}")
    return getattr(torch.ops.vcc, op)


def _triton(op: str) -> Callable[..., Any] | None:
    """The kernel that a piece is traced with, launched at once; None where Triton has none."""
    from vcc.engine.ops.triton import wrapped, wrapped_experts, wrapped_fused

    places = (wrapped, wrapped_fused, wrapped_experts)
    function = next((getattr(place, op) for place in places if hasattr(place, op)), None)
    if function is None:
        return None
    return lambda **given: function(**given, through=lambda kernel: kernel)


BACKENDS: Mapping[str, Callable[[str], Callable[..., Any] | None]] = {
    "csrc": _csrc,
    "triton": _triton,
    "native": lambda op: NATIVE[op],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_each_back_end_keeps_the_rule(backend: str, family: str, dtype: torch.dtype) -> None:
    torch.manual_seed(seed := torch.seed() % 2**31)
    print("torch seed", seed)
    tried = 0
    for case in FAMILIES[family](dtype):
        if backend == "triton" and not case.name.startswith(COMPILED):
            continue
        function = BACKENDS[backend](case.op)
        if function is not None:
            tried += 1
            judge(case.to("cuda"), results(function, case.to("cuda")))
    assert tried or backend == "triton"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_many_rows_are_right_to_the_last(dtype: torch.dtype) -> None:
    """Above 8 MB, where the grid is many waves: no row is left out or done twice."""
    for case in (*norm_cases(dtype, (4096,), tokens=2048), *gate_cases(dtype, (8192,), tokens=512)):
        if "gap 0 shift 0" in case.name:
            judge(case.to("cuda"), results(_csrc(case.op), case.to("cuda")))


@pytest.mark.parametrize("op", sorted(BUILDERS))
def test_a_captured_graph_gives_the_same_bits(op: str) -> None:
    """Kernels are capturable: no synchronisation, nothing of the host in a replay."""
    families = (norm_cases, gate_cases, rope_cases, router_cases)
    cases = (case for family in families for case in family(torch.bfloat16))
    case = next(one for one in cases if one.op == op).to("cuda")
    function = _csrc(op)
    wanted = results(function, case)  # loads the module, which a capture must not
    tensors = dict(case.tensors)
    before = {name: tensors[name].clone() for name in WRITTEN if name in tensors}
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = function(**tensors, **case.numbers)
    for name, one in before.items():
        tensors[name].copy_(one)
    graph.replay()
    torch.cuda.synchronize()
    found = () if found is None else found if isinstance(found, tuple) else (found,)
    got = (*found, *(tensors[name] for name in WRITTEN if name in tensors))
    for one, other in zip(got, wanted, strict=True):
        bits = (each.contiguous().view(torch.uint8) for each in (one, other))
        assert torch.equal(*bits)


def test_a_launch_goes_to_the_stream_that_is_current() -> None:
    x = torch.randn(4096, 8192, device="cuda", dtype=torch.bfloat16)
    silu = _csrc("silu_and_mul")
    wanted = silu(x)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late = silu(x)
        done = torch.cuda.Event()
        done.record()
    assert not done.query(), "it did not wait behind what was on its stream"
    stream.synchronize()
    assert torch.equal(late, wanted)


def test_no_rows_are_no_launch() -> None:
    empty = torch.empty(0, 64, device="cuda", dtype=torch.bfloat16)
    assert _csrc("silu_and_mul")(empty).shape == (0, 32)
    weight = torch.ones(64, device="cuda", dtype=torch.bfloat16)
    assert _csrc("rms_norm")(empty, weight, 1e-6).shape == (0, 64)
