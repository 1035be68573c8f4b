"""Triton kernels as users write them, each with one trap of binding by position."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def constexpr_first(x, SCALE: tl.constexpr, out, n, BLOCK: tl.constexpr):
    """A constexpr before run-time arguments."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * SCALE, mask=at < n)


@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def constexpr_outside(x, out, n, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """A constexpr that no autotune configuration sets, with a grid that depends on one that is."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(1)
    held = at < WIDTH
    tl.store(out + row * WIDTH + at, tl.load(x + row * WIDTH + at, mask=held) + n, mask=held)


@triton.jit
def with_float(x, out, n, eps, BLOCK: tl.constexpr):
    """A number that is no integer, as a run-time argument."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + eps, mask=at < n)


@triton.jit
def with_optional(x, bias, out, n, BLOCK: tl.constexpr):
    """A pointer that may be None."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    if bias is not None:
        value += tl.load(bias + at, mask=at < n)
    tl.store(out + at, value, mask=at < n)


@triton.jit
def add_into(x, cache, n, BLOCK: tl.constexpr):
    """Adds to `cache` in place."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(cache + at, mask=at < n) + tl.load(x + at, mask=at < n)
    tl.store(cache + at, total, mask=at < n)
