"""Store new keys and values in the paged cache, in Triton."""

from __future__ import annotations

import triton
import triton.language as tl

from vcc.engine.ops.triton.quant import cached


@triton.jit
def kv_write(
    k,
    v,
    kv_cache,
    slot_mapping,
    kv_scale,
    plane,
    WIDTH: tl.constexpr,
    LANES: tl.constexpr,
    K_STRIDE: tl.constexpr,
    V_STRIDE: tl.constexpr,
):
    """Store row `program_id(0)` of k and v [T, WIDTH] at its slot; slot -1 is skipped.

    `plane` is the number of elements of the K half of the cache; strides are elements a row. An fp8
    cache holds values over `kv_scale` [2], of K and of V; None is 1.
    """
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping + row)
    if slot >= 0:
        lane = tl.arange(0, LANES)
        inside = lane < WIDTH
        home = kv_cache + slot.to(tl.int64) * WIDTH + lane
        key = tl.load(k + row * K_STRIDE + lane, mask=inside, other=0.0)
        value = tl.load(v + row * V_STRIDE + lane, mask=inside, other=0.0)
        tl.store(home, cached(key, kv_scale, 0, kv_cache.dtype.element_ty), mask=inside)
        held = cached(value, kv_scale, 1, kv_cache.dtype.element_ty)
        tl.store(home + plane, held, mask=inside)
