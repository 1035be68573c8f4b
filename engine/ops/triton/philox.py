"""Philox4x32-10 in Triton: the first word of engine/runtime/sample.py's `philox`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def philox_word(seed, request, step):
    """32 random bits (uint32) of a 64-bit seed and the counter (step, request, 0, 0)."""
    c0, c1 = step.to(tl.uint32, bitcast=True), request.to(tl.uint32, bitcast=True)
    c2, c3 = c0 * 0, c0 * 0
    key = seed.to(tl.uint64, bitcast=True)
    k0, k1 = (key & 0xFFFFFFFF).to(tl.uint32), (key >> 32).to(tl.uint32)
    for _ in tl.static_range(10):
        left = c0.to(tl.uint64) * 0xD2511F53
        right = c2.to(tl.uint64) * 0xCD9E8D57
        c0 = (right >> 32).to(tl.uint32) ^ c1 ^ k0
        c2 = (left >> 32).to(tl.uint32) ^ c3 ^ k1
        c1 = (right & 0xFFFFFFFF).to(tl.uint32)
        c3 = (left & 0xFFFFFFFF).to(tl.uint32)
        k0 = ((k0.to(tl.uint64) + 0x9E3779B9) & 0xFFFFFFFF).to(tl.uint32)
        k1 = ((k1.to(tl.uint64) + 0xBB67AE85) & 0xFFFFFFFF).to(tl.uint32)
    return c0
