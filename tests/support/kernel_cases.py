"""One test body for each operator's kernel, for every back end: CPU, interpreter, device.

    TRITON_INTERPRET=1 python -m support.kernel_cases NAME ... --dtype float32

Inputs are fresh each time; the seed is printed. Errors are held by the project's numbers rule:
fp32 within 1e-4 of the largest value, other types at most 1.25 times the error of plain torch in
that type against fp32 (and one unit of rounding, where plain torch happens to be exact).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from support.paged import Heads, PagedBatch, paged_batch
from vcc.engine.ops import native_torch

EPS = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


@dataclass(frozen=True, slots=True)
class Backend:
    """Operators to test.

    Args:
        ops: has the operators of `torch.ops.vcc` as attributes.
        dtype: element type of the inputs.
        device: where tensors lie.
        small: keep sizes to what the interpreter does in seconds.
        part: which of the parts of a case is run (kernel_parts.py); all of them by default.
    """

    ops: Any
    dtype: torch.dtype
    device: str = "cpu"
    small: bool = False
    part: int | None = None

    def share(self, items: Sequence[Any]) -> Sequence[Any]:
        """The items of this part, of a case that has one part an item."""
        return items if self.part is None else items[self.part : self.part + 1]

    def randn(self, *shape: int) -> Tensor:
        """Random values, made on the CPU so that a seed says all."""
        return torch.randn(shape).to(self.dtype).to(self.device)

    def ints(self, values: Sequence[int]) -> Tensor:
        """An int32 tensor."""
        return torch.tensor(values, dtype=torch.int32, device=self.device)


def held(got: Tensor, want: Tensor, peer: Tensor | None = None) -> None:
    """The numbers rule; `want` is fp32, `peer` plain torch in the dtype of `got`."""
    if want.dtype != torch.float32 or not torch.isfinite(got).all():
        raise AssertionError("not fp32, or not finite")
    error, largest = (got.float() - want).double(), float(want.abs().max())
    if got.dtype == torch.float32:
        limits = (1e-4 * largest, 1e-4 * largest)
    else:
        other = ((want.to(got.dtype) if peer is None else peer).float() - want).double()
        floor = EPS[got.dtype] * largest / 8
        limits = (
            1.25 * float(other.square().mean().sqrt()) + floor / 8,
            1.25 * float(other.abs().max()) + floor,
        )
    found = (float(error.square().mean().sqrt()), float(error.abs().max()))
    if not (found[0] <= limits[0] and found[1] <= limits[1]):
        raise AssertionError(f"errors (rms, largest) {found} above {limits}")


ATTENTION_BATCHES = (
    [(1, 1)],
    [(130, 130)],
    [(200, 1), (64, 64), (65, 2), (300, 1), (90, 40), (17, 17)],
    [(300, 1), (17, 1), (64, 1)],
)
RULES = ((0, 0.0), (37, 0.0), (64, 30.0))
HEADS = (Heads(4, 2, 64), Heads(6, 2, 128), Heads(8, 1, 80), Heads(2, 2, 256), Heads(7, 1, 96))
HEADS_AND_RULES = tuple((heads, rule) for heads in HEADS for rule in RULES)


def attention(backend: Backend) -> None:
    """Prompts, decode rows and both; windows, caps, padding, strided queries, odd groups."""
    small = [(heads, RULES[at % 3]) for at, heads in enumerate(HEADS[1:3])]
    for heads, (window, cap) in small if backend.small else backend.share(HEADS_AND_RULES):
        for sequences in ATTENTION_BATCHES:
            batch = paged_batch(
                heads, sequences, backend.dtype, padding_rows=2, padding_sequences=2, width=24
            )
            _attention(backend, batch, {"sliding_window": window, "soft_cap": cap})


def attention_long(backend: Backend) -> None:
    """Contexts of thousands of keys over shuffled blocks, and one chunk of a longer prompt."""
    for sequences in backend.share(LONG_BATCHES):
        _attention(backend, paged_batch(Heads(8, 2, 128), sequences, backend.dtype, width=320), {})


LONG_BATCHES = ([(3000, 1)], [(5000, 1), (1, 1), (2500, 1)], [(3000, 700), (900, 1)])


def _attention(backend: Backend, batch: PagedBatch, rule: Mapping[str, Any]) -> None:
    want = batch.float().run(native_torch.paged_attention, **rule)
    tensors = (batch.q, batch.kv_cache, batch.block_table, batch.seq_lens, batch.query_start)
    moved = PagedBatch(*(tensor.to(backend.device) for tensor in tensors), batch.rows)
    peer = None if backend.dtype == torch.float32 else moved.run(plain_attention, **rule).cpu()
    for ops in (
        backend.ops,
        *([replace(backend.ops, force_mixed=True)] if _is_triton(backend) else []),
    ):
        got = moved.run(ops.paged_attention, **rule).cpu()
        if got[batch.rows :].any():
            raise AssertionError("rows of no sequence are not zero")
        held(got, want, peer)


def _is_triton(backend: Backend) -> bool:
    return hasattr(backend.ops, "force_mixed")


def plain_attention(
    q: Tensor, cache: Tensor, table: Tensor, lengths: Tensor, starts: Tensor, out: Tensor,
    scale: float, window: int, cap: float,
) -> None:  # fmt: skip
    """Attention as `transformers` runs it eagerly: products in the dtype, softmax in fp32."""
    out.zero_()
    heads_kv, dim = cache.shape[-2:]
    for index, length in enumerate(lengths.tolist()):
        begin, end = starts[index : index + 2].tolist()
        if end == begin or not length:
            continue
        used = cache[:, table[index].long()].flatten(1, 2)[:, :length].transpose(1, 2)
        rows = q[begin:end].reshape(end - begin, -1, dim).transpose(0, 1)
        keys, values = (part.repeat_interleave(rows.shape[0] // heads_kv, 0) for part in used)
        scores = rows @ keys.transpose(1, 2) * scale
        scores = torch.tanh(scores / cap) * cap if cap else scores
        at = torch.arange(length - (end - begin), length, device=q.device)[:, None]
        distance = at - torch.arange(length, device=q.device)[None]
        hidden = (distance < 0) | ((distance >= window) if window else False)
        weights = scores.float().masked_fill(hidden, float("-inf")).softmax(-1).to(q.dtype)
        out[begin:end] = (weights @ values).transpose(0, 1).flatten(1)


def norms(backend: Backend) -> None:
    """Widths that are no powers of two, more than two dimensions, both kinds of weight."""
    for shape in ((1, 1), (7, 100), (5, 4096), (2, 3, 24)):
        x, residual, weight = backend.randn(*shape), backend.randn(*shape), backend.randn(shape[-1])
        for offset in (0.0, 1.0):
            want = native_torch.rms_norm(x.float(), weight.float(), 1e-5, offset)
            held(backend.ops.rms_norm(x, weight, 1e-5, offset).cpu(), want.cpu())
            y, total = backend.ops.fused_add_rms_norm(x, residual, weight, 1e-5, offset)
            if not torch.equal(total, x + residual):
                raise AssertionError("the sum is not rounded once")
            want = native_torch.rms_norm(total.float(), weight.float(), 1e-5, offset)
            held(y.cpu(), want.cpu())


def silu(backend: Backend) -> None:
    """Widths around the tile, and a strided input."""
    for width in (1, 100, 1024, 1376):
        x = (4 * backend.randn(9, 2 * width + 3))[:, : 2 * width]
        held(backend.ops.silu_and_mul(x).cpu(), native_torch.silu_and_mul(x.float()).cpu())


def rotary(backend: Backend) -> None:
    """Whole and partial heads, counts that are no powers of two."""
    for dim, turned in ((16, 16), (80, 32), (128, 128), (20, 12)):
        q, k = backend.randn(9, 6 * dim), backend.randn(9, 3 * dim)
        angle = (10 * torch.randn(9, turned // 2)).to(backend.device)
        got = backend.ops.rotary_embedding(q, k, angle.cos(), angle.sin(), dim)
        want = native_torch.rotary_embedding(q.float(), k.float(), angle.cos(), angle.sin(), dim)
        for a, b in zip(got, want, strict=True):
            held(a.cpu(), b.cpu())


def kv_write(backend: Backend) -> None:
    """Strided rows, skipped rows, nothing else touched: exact."""
    for heads, dim in ((2, 64), (3, 80)):
        qkv = backend.randn(11, 4 * heads * dim)
        k, v = qkv[:, heads * dim : 2 * heads * dim], qkv[:, 3 * heads * dim :]
        cache = backend.randn(2, 5, 16, heads, dim)
        want, slots = cache.clone(), torch.randperm(80)[:11].int()
        slots[[0, 4]] = -1
        slots = slots.to(backend.device)
        native_torch.kv_write(k, v, want, slots)
        backend.ops.kv_write(k, v, cache, slots)
        if not torch.equal(cache, want):
            raise AssertionError("the cache differs")


def advance(backend: Backend) -> None:
    """Across block edges, with inactive sequences and tokens of NaN (-1 - id): exact."""
    for seqs in (1, 5, 70):
        table = torch.randperm(seqs * 8).int().view(seqs, 8)
        position, active = torch.randint(0, 126, (seqs,)), torch.rand(seqs) > 0.3
        token, step = torch.randint(0, 999, (seqs,)), torch.randint(0, 9, (seqs,))
        word = torch.where(torch.rand(seqs) > 0.5, token, -1 - token)
        fresh = {
            name: torch.full((seqs,), 77).int()
            for name in ("input_ids", "slot_mapping", "seq_lens")
        }
        given = {
            "token": word,
            "active": active,
            "block_table": table,
            "positions": position,
            "step": step,
        }
        tensors = {k: v.int().to(backend.device) for k, v in (given | fresh).items()}
        backend.ops.advance(tensors, 16)
        at = position + 1
        slot = table[torch.arange(seqs), at // 16] * 16 + at % 16
        for name, value in {
            "input_ids": torch.where(active, token, 0),
            "positions": torch.where(active, at, position),
            "seq_lens": torch.where(active, at + 1, 0),
            "slot_mapping": torch.where(active, slot, -1),
            "step": torch.where(active, step + 1, step),
        }.items():
            if not torch.equal(tensors[name].cpu(), value.int()):
                raise AssertionError(f"{name} differs")


def linear(backend: Backend) -> None:
    """Every tile of the device's table, split and not, ragged sizes, with and without addend."""

    for n, k, has_c in SMALL_PRODUCTS if backend.small else backend.share(PRODUCTS):
        for rows in (1, 16, 17, 50, 130) if backend.small else (1, 16, 17, 50, 128, 300):
            _product(backend, rows, n, k, has_c)


SMALL_PRODUCTS = tuple(
    (n, k, c) for n, k in ((160, 1040), (100, 90), (33, 7)) for c in (False, True)
)
PRODUCTS = tuple(
    (n, k, c) for n, k in ((160, 4112), (4096, 4096), (100, 90), (33, 7)) for c in (False, True)
)


def _product(backend: Backend, rows: int, n: int, k: int, has_c: bool) -> None:
    from vcc.engine.ops.triton.registry import gemm_variants

    name = str(backend.dtype).removeprefix("torch.")
    profile = replace(backend.ops.profile, sm_count=6) if backend.small else backend.ops.profile
    variants = gemm_variants(name, profile, [(n, k, has_c)])
    a, w, c = backend.randn(rows, k), backend.randn(n, k) / k**0.5, backend.randn(rows, n)
    added = c if has_c else torch.zeros_like(c)
    variant = next(v for v in variants if v.matches(n, k, has_c, rows))
    got = backend.ops.linear(a, w.contiguous(), c if has_c else None, variant).cpu()
    want = added.double().cpu() + a.double().cpu() @ w.double().cpu().T
    plain = None if got.dtype == torch.float32 else torch.addmm(added, a, w.T).cpu()
    held(got, want.float(), plain)


def sample(backend: Backend) -> None:
    """Tokens equal to sample.py's, but where fp32 rounding decides."""
    from support.sampling_cases import sampling

    sampling(backend)


CASES: Mapping[str, Callable[[Backend], None]] = {
    case.__name__: case
    for case in (attention, attention_long, norms, silu, rotary, kv_write, advance, linear, sample)
}
"""All cases by name."""

CPU_CASES = ("attention", "norms", "silu", "rotary", "kv_write")
"""Those whose operator the CPU has as well."""


def main() -> int:
    """Run cases by the interpreter; a failure is a traceback."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="+", choices=sorted(CASES))
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    from support.triton_ops import TritonOps
    from vcc.engine.torch_shim.profiles import PROFILES

    print("torch seed", torch.seed())
    # Few multiprocessors: few programs for the interpreter, and splits all the same.
    few = replace(PROFILES["sm_90"], sm_count=3)
    for name in options.names:
        CASES[name](Backend(TritonOps(few), getattr(torch, options.dtype), small=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
