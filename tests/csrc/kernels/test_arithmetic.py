"""The CUDA kernels' sources, run on the CPU, against plain torch: every type, width and layout.

The sources, the launches and the checks of memory are those of a device; the compiler is not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator

import pytest
import torch
from support import host_kernels
from support.cuda_cases import (
    WRITTEN,
    Case,
    cache_cases,
    gate_cases,
    nan_cases,
    norm_cases,
    rope_cases,
    router_cases,
)
from support.op_rule import judge

from vcc.engine.ops.cuda.table import BUILDERS

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
UNIT = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10, torch.float32: 2.0**-20}
"""One unit of the last place, relative; in fp32 sums and exponentials differ by a few more."""

Cases = Callable[[torch.dtype], Iterator[Case]]
FAMILIES: tuple[Cases, ...] = (norm_cases, gate_cases, rope_cases, cache_cases, router_cases)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels, compiled for the host: 8 s of a core."""
    if host_kernels.compiler() is None:
        pytest.skip("no C++ compiler")
    return host_kernels.load(host_kernels.build(tmp_path_factory.mktemp("kernels")))


def results(library: ctypes.CDLL, case: Case, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """What a kernel gives; then what it wrote in place."""
    tensors = {n: one.clone() if n in WRITTEN else one for n, one in case.tensors.items()}
    found = host_kernels.run(library, case.op, tensors, case.numbers, seed)
    return (*found, *(tensors[name] for name in WRITTEN if name in tensors))


def check(case: Case, got: tuple[torch.Tensor, ...]) -> None:
    """Equal but for one rounding; fp8 but for a step, where a rounding before it differs."""
    wanted = case.wanted()
    assert len(got) == len(wanted)
    for mine, want in zip(got, wanted, strict=True):
        assert mine.dtype == want.dtype, case
        assert mine.shape == want.shape, case
        if want.dtype == torch.float8_e4m3fn:
            check_fp8(case, mine, want)
        elif want.is_floating_point():
            close(mine, want, tolerance(case, want), f"{case.op} {case.name}")
        else:
            assert torch.equal(mine, want), case.name


def tolerance(case: Case, want: torch.Tensor) -> tuple[float, float]:
    """Relative, and absolute: sums that cancel are as exact as what is summed."""
    given = next(iter(case.tensors.values())).dtype
    unit = UNIT[given]  # scales are fp32, of values in the operator's type
    largest = float(want.double().nan_to_num(0, 0, 0).abs().max()) if want.numel() else 0.0
    rounded_before = given != torch.float32 and case.op != "qk_norm_rope"
    return unit, unit * largest / (256 if rounded_before else 1)


def close(got: torch.Tensor, want: torch.Tensor, tolerance: tuple[float, float], what: str) -> None:
    rtol, atol = tolerance
    a, b = got.double(), want.double()
    torch.testing.assert_close(
        a, b, rtol=rtol, atol=atol, equal_nan=True, msg=lambda text: f"{what}: {text}"
    )


def check_fp8(case: Case, got: torch.Tensor, want: torch.Tensor) -> None:
    """Steps of e4m3 are neighbours in their bits; at most one value in fifty may be one off."""
    assert torch.equal(got.float().isnan(), want.float().isnan()), f"{case.op} {case.name}"
    there = ~want.float().isnan()
    mine, others = (one.view(torch.uint8)[there].int() for one in (got, want))
    ordered = [torch.where(bits > 127, 128 - bits, bits) for bits in (mine, others)]
    apart = (ordered[0] - ordered[1]).abs()
    assert apart.numel() == 0 or int(apart.max()) <= 1, f"{case.op} {case.name}"
    assert int((apart > 0).sum()) <= max(2, apart.numel() // 50), f"{case.op} {case.name}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda one: one.__name__)
def test_each_kernel_gives_what_plain_torch_gives(
    library: ctypes.CDLL, family: Cases, dtype: torch.dtype
) -> None:
    torch.manual_seed(seed := torch.seed() % 2**31)
    print("torch seed", seed)
    for case in family(dtype):
        check(case, results(library, case))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_and_zeros_stay_in_their_rows(library: ctypes.CDLL, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    for case in nan_cases(dtype):
        check(case, results(library, case))


def test_the_order_of_the_threads_changes_no_bit(library: ctypes.CDLL) -> None:
    """A barrier that is missing shows when threads take turns in another order."""
    torch.manual_seed(2)
    families = (
        *norm_cases(torch.bfloat16, (128, 4096)),
        *gate_cases(torch.bfloat16, (4096,)),
        *rope_cases(torch.bfloat16, ((8, 2, 128, 64),)),
        *router_cases(torch.bfloat16),
    )
    for case in families:
        first = results(library, case)
        for seed in (1, 2):
            for one, other in zip(first, results(library, case, seed), strict=True):
                assert torch.equal(one.view(torch.uint8), other.view(torch.uint8)), case.name


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_rule_of_the_device_tests_holds_here_too(
    library: ctypes.CDLL, dtype: torch.dtype
) -> None:
    """Beside plain torch against fp32: what tests/gpu/test_ops.py asks of every back end."""
    torch.manual_seed(3)
    for case in (
        *norm_cases(dtype, (1024,)),
        *gate_cases(dtype, (1408,)),
        *rope_cases(dtype, ((2, 1, 80, 10),)),
    ):
        judge(case, results(library, case))


def test_every_operator_is_tried(library: ctypes.CDLL) -> None:
    tried = {case.op for family in FAMILIES for case in family(torch.float32)}
    assert tried == set(BUILDERS)


def test_a_kernel_that_leaves_its_memory_is_seen(library: ctypes.CDLL) -> None:
    x, weight = torch.randn(4, 64), torch.ones(64)
    numbers = {"eps": 1e-6, "weight_offset": 0.0}
    call = host_kernels.cuda_call(
        "rms_norm", {"x": host_kernels.layout(x), "weight": host_kernels.layout(weight)}, numbers
    )
    with pytest.raises(AssertionError, match="a write outside its memory"):
        host_kernels.launch(library, call, {"x": x, "weight": weight, "out": torch.empty(3, 64)}, 0)
    with pytest.raises(AssertionError, match="a read outside its memory"):
        host_kernels.launch(
            library, call, {"x": x[:3], "weight": weight, "out": torch.empty(4, 64)}, 0
        )


def test_fp8_is_converted_as_torch_does(library: ctypes.CDLL) -> None:
    """Every bf16 number: silu(100) is 100, which the scale takes away again."""
    numbers = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)
    gate = torch.full((16, 4096), 100.0, dtype=torch.bfloat16)
    x = torch.cat((gate, numbers.view(16, 4096)), dim=1)
    case = Case("silu_and_mul_quant", "all", {"x": x, "scale": torch.tensor([100.0])})
    (got,), (want,) = results(library, case), case.wanted()
    assert torch.equal(got.float().nan_to_num(7.0), want.float().nan_to_num(7.0))
