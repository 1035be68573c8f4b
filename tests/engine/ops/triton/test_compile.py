"""The kernels compile for every target, within a block's shared memory; no device is needed."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from vcc.cache.errors import CompileError
from vcc.engine.graphs.table.types import When
from vcc.engine.ops.schemas import OPS
from vcc.engine.ops.surfaces.bind import of_function, of_schema
from vcc.engine.ops.surfaces.triton import ROWS
from vcc.engine.ops.triton.registry import (
    BUILDERS,
    Facts,
    KernelSpec,
    TensorLayout,
    advance_launches,
    gemm_scratch,
    gemm_variants,
    launches,
    sample_launches,
)
from vcc.engine.passes.launches import kernels
from vcc.engine.torch_shim.profiles import PROFILES, DeviceProfile


@pytest.fixture(autouse=True)
def compiled_each_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A cubin of an earlier run proves nothing."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def facts(target: str = "sm_90", dtype: str = "bfloat16", block_size: int = 16) -> Facts:
    return Facts(dtype, PROFILES[target], block_size, 64, 32000)


def attention(
    found: Facts, dim: int = 128, heads: int = 8, kv_heads: int = 2, op: str = "paged_attention"
) -> Any:
    width = heads * dim
    literals = {
        "q": TensorLayout(("T", width), (width + 2 * kv_heads * dim, 1)),
        "kv_cache": TensorLayout((2, "K", found.block_size, kv_heads, dim)),
        "out": TensorLayout(("T", width)),
        "scale": dim**-0.5,
        "sliding_window": 0,
        "soft_cap": 0.0,
    }
    return launches(op, literals, found)


def fits(spec: KernelSpec, profile: DeviceProfile) -> bytes:
    made = spec.compile(profile)
    assert made.shared <= profile.shared_per_block_optin
    return made.cubin


@pytest.mark.parametrize("target", PROFILES)
def test_attention_and_products_for_every_target(target: str) -> None:
    found = facts(target)
    specs = [launch.kernel for launch in attention(found).launches]
    variants = gemm_variants("bfloat16", found.profile, [(4096, 4096, False)])
    specs += [variants[0].kernel, next(v for v in variants if not v.max_rows).kernel]
    assert all(arch_of(fits(spec, found.profile)) == found.profile.arch for spec in specs)


def arch_of(cubin: bytes) -> int:
    """The architecture in an ELF header's flags: byte 1, or byte 0 in the older layout."""
    flags = struct.unpack_from("<I", cubin, 0x30)[0]
    high, low = flags >> 8 & 0xFF, flags & 0xFF
    return high if high in {80, 86, 89, 90, 100, 120} else low


@pytest.mark.parametrize(
    "target",
    ["sm_90", *(pytest.param(t, marks=pytest.mark.slow) for t in ("sm_89", "sm_100", "sm_120"))],
)
def test_attention_with_fp8_results_for_every_target_that_has_the_type(target: str) -> None:
    found = facts(target)
    for launch in attention(found, op="paged_attention_quant").launches:
        fits(launch.kernel, found.profile)
        assert launch.arguments["out_scale"] == "out_scale"
        assert ("out", "*fp8e4nv") in launch.kernel.parameters


@pytest.mark.parametrize("target", ["sm_80", "sm_86"])
def test_fp8_results_are_refused_for_a_device_without_the_type(target: str) -> None:
    with pytest.raises(CompileError, match=f"not for {target}"):
        attention(facts(target), op="paged_attention_quant")


def test_every_operator_has_a_triton_form() -> None:
    """Inside a piece by a function that launches it, or as nodes of a table."""
    wrapped = {row.op for row in ROWS.values()}
    assert {op.name for op in OPS} == wrapped | BUILDERS.keys()
    lowered = kernels()
    assert lowered.keys() <= wrapped
    for op in OPS:
        if op.name in lowered:
            names = tuple(one.name for one in of_schema(op.schema))
            taken = tuple(one.name for one in of_function(lowered[op.name]))
            assert taken == (*names, "through"), op.name


@pytest.mark.parametrize("target", ["sm_86", "sm_90"])
def test_large_heads_fit_the_shared_memory(target: str) -> None:
    for launch in attention(facts(target), dim=256).launches:
        fits(launch.kernel, PROFILES[target])


def test_everything_else_compiles() -> None:
    found, kv = facts(), TensorLayout(("T", 256))
    made = launches("kv_write", {"k": kv, "v": kv}, found).launches
    made += advance_launches(found).launches + sample_launches(found).launches
    for launch in made:
        fits(launch.kernel, found.profile)


def test_values_of_the_cache_are_read_asynchronously_in_wide_pieces() -> None:
    """The V half lies a run-time distance behind the K half, which must be known to be aligned."""
    for launch in attention(facts()).launches[::2]:
        assert "plane" in launch.kernel.aligned
    odd = attention(facts(block_size=1), dim=8, kv_heads=1)
    assert "plane" not in odd.launches[0].kernel.aligned


def test_every_launch_binds_exactly_its_parameters() -> None:
    found = facts()
    quantised = attention(found, op="paged_attention_quant")
    for plan in (attention(found), quantised, advance_launches(found), sample_launches(found)):
        names = {space.name for space in plan.workspaces}
        assert len(names) == len(plan.workspaces)
        for launch in plan.launches:
            parameters = dict(launch.kernel.parameters)
            assert launch.arguments.keys() == parameters.keys()
            assert launch.access.keys() == {n for n, k in parameters.items() if k[0] == "*"}


def test_attention_runs_one_way_in_decode_steps_and_another_in_all_others() -> None:
    assert [launch.when for launch in attention(facts()).launches] == [
        When.UNIFORM,
        When.UNIFORM,
        When.MIXED,
    ]


@pytest.mark.parametrize("dim", [12, 264])
def test_heads_that_no_tile_takes_are_refused(dim: int) -> None:
    with pytest.raises(CompileError, match="not supported"):
        attention(facts(), dim=dim)


def test_an_operator_without_a_kernel_and_a_huge_vocabulary_are_refused() -> None:
    with pytest.raises(CompileError, match="has no kernel of its own"):
        launches("rms_norm", {}, facts())
    with pytest.raises(CompileError, match="cannot sample"):
        sample_launches(Facts("bfloat16", PROFILES["sm_90"], 16, 1, (1 << 18) + 1))


def products() -> Iterator[tuple[str, str, int, int, bool]]:
    shapes = ((4096, 4096), (28672, 4096), (128256, 4096), (100, 90))
    for target, dtype in itertools.product(PROFILES, ("bfloat16", "float32")):
        for (n, k), has_c in itertools.product(shapes, (False, True)):
            yield target, dtype, n, k, has_c


def test_every_product_has_a_variant_and_scratch_for_it() -> None:
    for target, dtype, n, k, has_c in products():
        variants = gemm_variants(dtype, PROFILES[target], [(n, k, has_c)])
        for rows in (1, 16, 17, 64, 65, 129, 300, 5000):
            used = next(v for v in variants if v.matches(n, k, has_c, rows))
            needed = 4 * used.split_k * rows * n if used.split_k > 1 else 0
            assert gemm_scratch(variants, n, k, has_c, rows) >= needed
            assert (used.reduce is None) == (used.split_k == 1)
            assert (n % 16 or k % 16) or used.n == n, "the slow kernel was taken"


def test_a_kernel_for_any_shape_assumes_nothing_of_it() -> None:
    for variant in gemm_variants("bfloat16", PROFILES["sm_90"]):
        assert not {"n", "k", "rows"} & variant.kernel.aligned
