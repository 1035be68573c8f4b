"""Products of a table on the CPU: with every form of scales, and with a bias or none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vcc.engine.graphs.host_memory import HostMemory
from vcc.engine.graphs.interpreted_products import multiply
from vcc.engine.graphs.table.bounds import scale_bytes
from vcc.engine.graphs.table.types import (
    READ,
    WRITE,
    Gemm,
    Node,
    NodeKind,
    NodeTable,
    Param,
    ParamKind,
    Region,
    RegionKind,
    Symbol,
)
from vcc.engine.ops.native_scaled import scaled_linear

M, N, K = 3, 130, 256
FP8 = "float8_e4m3fn"


@pytest.mark.parametrize("has_c", [False, True])
@pytest.mark.parametrize("scales", ["tensor", "rows", "blocks", "mixed"])
def test_a_scaled_product_is_that_of_plain_torch(scales: str, has_c: bool) -> None:
    torch.manual_seed(0)
    gemm = Gemm("T", N, K, FP8, has_c, "bfloat16", scales)
    shapes = {
        "tensor": ((1,), (1,)),
        "rows": ((M, 1), (N,)),
        "blocks": ((M, 2), (2, 2)),
        "mixed": ((1,), (N,)),
    }[scales]
    a, w = (torch.randn(size, K).to(torch.float8_e4m3fn) for size in (M, N))
    c = torch.randn(N).bfloat16()
    a_scale, w_scale = (torch.rand(shape) + 0.5 for shape in shapes)
    given = {0: a, 8: w, 16: c, 24: torch.zeros(M, N).bfloat16(), 32: a_scale, 40: w_scale}
    assert scale_bytes(scales, M, N, K) == (a_scale.nbytes, w_scale.nbytes)
    memory, node = placed(given, has_c)
    multiply(gemm, node, memory)
    ranges = [N] if scales == "tensor" else []
    wanted = scaled_linear(a, w, a_scale, w_scale, c if has_c else None, ranges, torch.bfloat16)
    start = memory.place(0, 256 * 256 * 3)
    found = torch.from_numpy(memory.block[start : start + wanted.nbytes].copy())
    assert torch.equal(found.view(torch.bfloat16).view(M, N), wanted)


def placed(given: dict[int, torch.Tensor], has_c: bool) -> tuple[HostMemory, Node]:
    """The operands in a region, each at its own multiple of 64 KiB, and the node that has them."""
    table = NodeTable(
        symbols=(Symbol("T", 1, M),), regions=(Region(RegionKind.WORKSPACE, 256 * 256 * 6),)
    )
    memory = HostMemory(table, {"T": M})
    memory.begin({"T": M})
    params = []
    for at, tensor in given.items():
        if at == 16 and not has_c:
            continue
        spot = 256 * 256 * (at // 8)
        data = tensor.contiguous().view(torch.uint8).numpy().reshape(-1)
        start = memory.place(0, spot)
        memory.block[start : start + data.size] = data
        params.append(Param(ParamKind.POINTER, WRITE if at == 24 else READ, at, 0, spot))
    assert memory.block.dtype == np.uint8
    return memory, Node(NodeKind.GEMM, target=0, params=tuple(params))
