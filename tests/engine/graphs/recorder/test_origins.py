"""Whose code a recorded cubin is, by what its functions are called."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest
from support.sources import ROOT

from vcc.engine.graphs.recorder.origins import OWN_KERNELS, UNKNOWN, library_of, vendor_cubins
from vcc.engine.graphs.table.types import Kernel

OPEN = (
    "triton_poi_fused_add_mul_0",
    "decode_attention",
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
    "_ZN3c104cuda4testEv",
    "_ZN13pytorch_flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsEEvNS_16Flash_fwd_paramsE",
)
VENDORS = {
    "nvjet_sm90_tst_128x8_64x12_4x1_v_bz_TNT": "cuBLASLt",
    "_ZN8cublasLt19splitKreduce_kernelILi32ELi16EiffffEEvNS_18cublasSplitKParamsIT3_EE": "cuBLASLt",
    "_ZN17gemv2T_kernel_valIiiffffLi128ELi16ELi4ELi4ELb0ELb0E18cublasGemvParamsExEEvT9_": "cuBLAS",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1": "cuBLAS",
    "ampere_sgemm_128x64_tn": "cuBLAS",
    "_ZN7cutlass7Kernel2I58cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_32x6E": "cuBLAS",
    "cudnn_infer_ampere_scudnn_winograd_128x128": "cuDNN",
    "_Z35ncclDevKernel_AllReduce_Sum_bf16_RING": "NCCL",
}


@pytest.mark.parametrize("name", OPEN)
def test_open_code_is_nobodys_library(name):
    assert library_of([name]) == ""


@pytest.mark.parametrize("name", VENDORS)
def test_kernels_of_libraries_are_known_by_name(name):
    assert library_of([name]) == VENDORS[name]
    assert library_of(["triton_poi_fused_0", name]) == VENDORS[name]


@pytest.mark.parametrize("name", ["somebodys_kernel", "", "_ZN4mine4workEv", "decode_attention_2"])
def test_what_is_not_known_counts_as_a_vendors(name):
    assert library_of([name]) == UNKNOWN


def test_the_list_is_by_cubin_and_sorted():
    plain = Kernel("aa" * 32, "rms_norm", (32, 1, 1), 0, 8)
    gemm = replace(plain, cubin="cc" * 32, function="nvjet_x")
    twice = replace(gemm, function="nvjet_y")
    odd = replace(plain, cubin="bb" * 32, function="mine")
    assert vendor_cubins([twice, plain, gemm, odd]) == [
        {"digest": "bb" * 32, "library": UNKNOWN},
        {"digest": "cc" * 32, "library": "cuBLASLt"},
    ]
    assert vendor_cubins([]) == []


def test_our_own_kernels_are_those_of_the_operators():
    """A new Triton kernel must be listed, else artifacts with it seem to carry a vendor's code."""
    found = set()
    for file in (ROOT / "engine/ops/triton").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            marks = [ast.unparse(m) for m in getattr(node, "decorator_list", ())]
            if any("triton.jit" in mark for mark in marks):
                found.add(node.name)
    assert found >= OWN_KERNELS
    called = {
        node.func.id
        for file in (ROOT / "engine/ops/triton").glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert found - OWN_KERNELS <= called  # the rest are parts of kernels
