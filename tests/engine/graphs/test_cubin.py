"""Cubins say what they are; damaged ones are refused, whatever is wrong with them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.gpu_artifacts import cubin

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.cubin import CubinFunction, read_cubin

MADE = cubin(("first", 40, 56), ("second", 255, 4096))


def test_functions_have_registers_parameters_and_memory() -> None:
    found = read_cubin(MADE)
    assert (found.arch, found.target) == (90, "sm_90")
    assert found.functions == {
        "first": CubinFunction("first", 40, 1024, 0, 56, 128),
        "second": CubinFunction("second", 255, 1024, 0, 4096, 128),
    }


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100", "sm_120"])
def test_what_triton_makes_is_read(arch: str, tmp_path, monkeypatch) -> None:
    from vcc.engine.ops.triton.kv import kv_write
    from vcc.engine.torch_shim.profiles import PROFILES
    from vcc.engine.torch_shim.triton_build import compile_kernel

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    pointers = {"k": "*bf16", "v": "*bf16", "kv_cache": "*bf16", "slot_mapping": "*i32"}
    constants = {"WIDTH": 64, "LANES": 64, "K_STRIDE": 64, "V_STRIDE": 64, "kv_scale": None}
    made = compile_kernel(kv_write, pointers | {"plane": "i64"}, constants, (), PROFILES[arch])
    found = read_cubin(made.cubin)
    assert found.target == arch
    function = found.functions[made.function]
    assert function.param_bytes == made.param_bytes
    assert 8 <= function.registers <= 255
    assert function.code_bytes > 128


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF", bytes(64), MADE[:100], b"\x7fELF\x02" + bytes(59)]
)
def test_what_is_no_cubin_is_refused(data: bytes) -> None:
    with pytest.raises(IntegrityError, match="cubin"):
        read_cubin(data)


@given(st.integers(0, len(MADE) - 1), st.integers(1, 255))
def test_a_changed_byte_is_read_or_refused_but_never_anything_else(at: int, by: int) -> None:
    data = bytearray(MADE)
    data[at] ^= by
    with suppress(IntegrityError):
        read_cubin(bytes(data))
