"""The CUDA kernels' sources, run on the CPU, against plain torch: every type, width and layout.

The sources, the launches and the checks of memory are those of a device; the compiler is not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping

import pytest
import torch
from support import host_kernels
from support.cuda_cases import (
    FAMILIES,
    NATIVE,
    WRITTEN,
    Case,
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
                assert torch.equal(
                    one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8)
                ), case.name


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


def every_number(dtype: torch.dtype) -> torch.Tensor:
    """All 65536 numbers of a 16-bit type."""
    return torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(dtype)


SCALES = (
    *(0.0, -0.0, float("inf"), float("nan"), 1e-44, 2.0**-110, 2.0**-100, 2.0**110, 2.0**127),
    *(1 - 2.0**-24, -(1 - 2.0**-24) * 2**-7, 1 / 448, 3.0, -0.37, 2.0**-3, 2 - 2.0**-23),
)
"""Those that leave the range of fp32, and those whose quotients lie beside half-way numbers."""


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_a_product_with_two_parts_of_a_reciprocal_is_the_division(
    library: ctypes.CDLL, dtype: torch.dtype
) -> None:
    """Every number by every scale, through a cache in fp8: no code differs."""
    torch.manual_seed(seed := torch.seed() % 2**31)
    print("torch seed", seed)
    numbers = every_number(dtype).view(16, 4096)
    cache = torch.zeros(2, 4, 4, 32, 128).to(torch.float8_e4m3fn)
    slots = torch.arange(16, dtype=torch.int32)
    given = {"k": numbers, "v": numbers, "kv_cache": cache, "slot_mapping": slots}
    drawn = torch.exp2(torch.rand(8) * 40 - 20)
    for scales in torch.cat((torch.tensor(SCALES), drawn)).view(-1, 2):
        case = Case("kv_write", f"{scales}", {**given, "kv_scale": scales})
        (got,), (want,) = results(library, case), case.wanted()
        assert torch.equal(got.float().nan_to_num(7.0), want.float().nan_to_num(7.0)), scales
        assert torch.equal(got.float().isnan(), want.float().isnan()), scales


ENDS = (-87.4, -88.5, -89.0, -104.0, -110.0, -1e4, 1e4, 5.0, -5.0, 1e-7, -1e-7, 0.0, -0.0, 88.0)
FORMS: Mapping[str, tuple[str, dict[str, bool], Callable[[torch.Tensor], torch.Tensor]]] = {
    "silu": ("silu_and_mul", {}, lambda x: x / (1 + torch.exp(-x))),
    "tanh": ("gelu_and_mul", {"tanh": True}, lambda x: x / (1 + torch.exp(-2 * inner(x)))),
    "erf": ("gelu_and_mul", {"tanh": False}, lambda x: x * torch.erfc(-x / 2**0.5) / 2),
}


def inner(x: torch.Tensor) -> torch.Tensor:
    """What GELU takes the hyperbolic tangent of."""
    return (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_gates_are_right_at_the_ends(library: ctypes.CDLL, form: str, dtype: torch.dtype) -> None:
    """Where exponentials leave fp32, at zero, and for what is no number; against fp64."""
    op, numbers, exact = FORMS[form]
    far, infinity = torch.finfo(dtype).max / 2, float("inf")
    gate = torch.tensor([(*ENDS, float("nan"), infinity, -infinity, far, -far, 3.0)]).to(dtype)
    case = Case(op, form, {"x": torch.cat((gate, torch.ones_like(gate)), dim=1)}, numbers)
    (got,) = results(library, case)
    close(got, exact(gate.double()), (UNIT[dtype], 4e-7), form)


def test_the_rule_takes_a_rounding_that_moves_a_scale_and_no_wrong_scale() -> None:
    torch.manual_seed(4)
    x = torch.randn(2, 512).to(torch.bfloat16)
    x[:, 0], x[:, 256] = 4.0, torch.tensor([3.0, 2.0])  # the largest of each row: 11.784, 7.856
    case = Case("silu_and_mul_quant_dynamic", "", {"x": x}, {"block_size": 0, "least": 1e-9})
    product = NATIVE["silu_and_mul"](x)
    assert float(product[0].abs().max()) in (11.75, 11.8125)
    product[0, 0] = 11.75 if product[0, 0] > 11.784 else 11.8125  # the other neighbour
    scales = product.float().abs().amax(dim=1, keepdim=True) / 448
    codes = (product.float() / scales).to(torch.float8_e4m3fn)
    judge(case, (codes, scales))
    with pytest.raises(AssertionError, match="rms"):
        judge(case, (codes, scales * 1.1))
    with pytest.raises(AssertionError, match="result 0"):
        judge(case, (codes.flip(0), scales))
