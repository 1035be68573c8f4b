"""Our attention of whole rows held to torch's, by Triton's interpreter or on a device.

TRITON_INTERPRET=1 python -m support.attention_cases float32
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from support.kernel_cases import held
from vcc.engine.ops.native_attention import attention
from vcc.engine.ops.triton.wrapped_attention import attended

LEAST = torch.finfo(torch.float32).min


@dataclass(frozen=True, slots=True)
class Case:
    """Sizes of a call; `mask` is a name of MASKS, `laid` one of LAYOUTS."""

    batch: int
    heads: int
    shared: int
    tokens: int
    keys: int
    dim: int
    width: int
    mask: str = ""
    causal: bool = False
    laid: str = "tokens outside"
    scale: float | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of the scores."""
        return self.batch, self.heads, self.tokens, self.keys


SMALL = (
    Case(2, 3, 3, 65, 70, 32, 32),
    Case(1, 2, 2, 5, 197, 64, 64, laid="dense"),
    Case(2, 4, 2, 33, 40, 80, 80, mask="rows"),
    Case(1, 6, 2, 70, 70, 96, 96, causal=True),
    Case(1, 2, 1, 40, 33, 128, 128, mask="added", laid="values outside"),
    Case(3, 2, 2, 9, 17, 12, 20, mask="keys", laid="of one product"),
    Case(2, 2, 2, 64, 64, 16, 16, mask="none seen"),
    Case(2, 2, 2, 66, 1, 8, 8, mask="batches"),
    Case(1, 3, 3, 20, 66, 24, 64, mask="least", causal=True),
    Case(2, 2, 2, 17, 35, 64, 64, mask="heads", scale=-0.3),
    Case(1, 1, 1, 1, 1, 64, 64, scale=0.0),
    Case(1, 2, 2, 100, 37, 32, 32, causal=True, mask="strided"),
)
LARGE = (
    Case(32, 12, 12, 197, 197, 64, 64),
    Case(8, 12, 12, 128, 128, 64, 64, mask="rows"),
    Case(2, 16, 4, 1000, 1100, 128, 128, mask="added"),
    Case(2, 8, 8, 2049, 2049, 128, 128, causal=True),
    Case(4, 16, 16, 513, 300, 80, 80, mask="keys"),
    Case(4, 4, 4, 300, 700, 96, 96, mask="heads", laid="of one product"),
)
"""For a device."""


def _drawn(shape: tuple[int, ...], device: str) -> Tensor:
    return torch.rand(shape, device=device) > 0.4


def masks(case: Case, device: str) -> Mapping[str, Tensor | None]:
    """Every mask there is of a call, by name."""
    batch, heads, tokens, keys = case.shape
    seen = _drawn((batch, 1, tokens, keys), device)
    none = seen.clone()
    none[:, :, ::3] = False
    least = torch.zeros(tokens, keys, device=device).masked_fill(~seen[0, 0], LEAST)
    least[tokens // 2] = LEAST
    return {
        "": None,
        "rows": seen,
        "keys": _drawn((batch, 1, 1, keys), device).expand(batch, heads, tokens, keys),
        "batches": _drawn((batch, 1, 1, 1), device),
        "heads": torch.randn(heads, tokens, keys, device=device),
        "added": torch.randn(tokens, keys, device=device).masked_fill(~seen[0, 0], -torch.inf),
        "none seen": none,
        "least": least,
        "strided": _drawn((keys, tokens), device).t(),
    }


def laid(shape: tuple[int, int, int, int], how: str, device: str) -> Tensor:
    """Random [B, H, T, D] in a layout."""
    batch, heads, tokens, dim = shape
    if how == "dense":
        return torch.randn(shape, device=device)
    if how == "values outside":
        return torch.randn(batch, heads, dim, tokens, device=device).transpose(2, 3)
    parts = 3 if how == "of one product" else 1
    whole = torch.randn(batch, tokens, parts, heads, dim, device=device)
    return whole[:, :, -1].transpose(1, 2)


def check(case: Case, dtype: torch.dtype, device: str = "cpu") -> None:
    """One case by the numbers rule; torch's own result is in fp32, and in the type as the peer."""
    query = (case.batch, case.heads, case.tokens, case.dim)
    others = [(case.batch, case.shared, case.keys, one) for one in (case.dim, case.width)]
    q, k, v = (laid(one, case.laid, device).to(dtype) for one in (query, *others))
    mask = masks(case, device)[case.mask]
    if mask is not None and mask.dtype is not torch.bool and case.mask != "least":
        mask = mask.to(dtype)
    scale = case.dim**-0.5 if case.scale is None else case.scale
    found = attended(q, k, v, mask, case.causal, scale, through=lambda kernel: kernel)
    options = {"scale": scale, "enable_gqa": case.heads != case.shared}
    wide = mask if mask is None or mask.dtype is torch.bool else mask.float()
    exact = attention(q.float(), k.float(), v.float(), wide, case.causal, **options)
    peer = attention(q, k, v, mask, case.causal, **options)
    assert found.shape == exact.shape
    assert found.dtype is dtype
    held(found, exact, peer)
    if case.mask == "none seen":
        assert not found[:, :, ::3].any()


def check_fewer_dimensions(dtype: torch.dtype, device: str = "cpu") -> None:
    """[N, T, D] and [T, D], and that what is not finite is where torch has it."""
    q, k, v = (torch.randn(3, size, 16, device=device).to(dtype) for size in (5, 7, 7))
    v[1, 2, 3] = float("inf")
    for given in ((q, k, v), (q[0], k[0], v[0])):
        found = attended(*given, None, False, 0.25, through=lambda kernel: kernel)
        exact = attention(*(one.float() for one in given), scale=0.25)
        assert found.is_contiguous()
        assert torch.equal(found.isfinite(), exact.isfinite())
        peer = attention(*given, scale=0.25)
        held(*(one.nan_to_num(0.0, 0.0, 0.0) for one in (found, exact, peer)))


if __name__ == "__main__":
    torch.manual_seed(0)
    for one in SMALL:
        check(one, getattr(torch, sys.argv[1]))
    check_fewer_dimensions(getattr(torch, sys.argv[1]))
