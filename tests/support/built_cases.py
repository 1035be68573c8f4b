"""Cases for the Triton kernels as built: drawn sizes, each held against fp32 beside plain torch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from support.built_kernels import Built
from support.cuda_cases import Case, gate_cases, norm_cases, results, rope_cases, router_cases
from support.kernel_cases import EPS, held, plain_attention
from support.op_rule import FLIPPED, judge, judge_one
from support.paged import Heads, paged_batch
from support.triton_ops import TritonOps
from vcc.engine.ops import native_experts, native_torch
from vcc.engine.ops.native_quant import FP8, quantised
from vcc.engine.passes.launches import kernels

FP8_ARCH = 89
HELD = Callable[[Case, tuple[Tensor, ...]], None]


def width() -> int:
    """Of rows: seldom a multiple of anything."""
    return random.randrange(17, 3000)


def tokens() -> int:
    """Of a call."""
    return random.randrange(1, 40)


def norms(dtype: torch.dtype) -> Iterator[Case]:
    """Norms with all that is fused into them."""
    yield from norm_cases(dtype, (width(), 128 * random.randrange(1, 40)), tokens())


def gates(dtype: torch.dtype) -> Iterator[Case]:
    """Gated activations and their quantised forms."""
    yield from gate_cases(dtype, (width(), 128 * random.randrange(1, 30)), tokens())


def ropes(dtype: torch.dtype) -> Iterator[Case]:
    """Rotation by itself, behind a norm, and in front of the cache."""
    keys, dim = random.randrange(1, 5), 8 * random.randrange(2, 33)
    half = random.randrange(1, dim // 2 + 1)
    yield from rope_cases(dtype, ((keys * random.randrange(1, 6), keys, dim, half),))


def routers(dtype: torch.dtype) -> Iterator[Case]:
    """Routers of both kinds."""
    yield from router_cases(dtype, tokens())


def projections(dtype: torch.dtype) -> Iterator[Case]:
    """A norm inside the projection that reads it."""
    for given in (False, True):
        rows, deep, wide = 16 + tokens(), 8 * random.randrange(4, 80), random.randrange(20, 400)
        x, norm = torch.randn(rows, deep).to(dtype), (1 + 0.3 * torch.randn(deep)).to(dtype)
        weight, bias = (torch.randn(wide, deep) / deep**0.5).to(dtype), torch.randn(wide).to(dtype)
        tensors = {"x": x, "norm_weight": norm, "weight": weight}
        numbers = {"eps": 1e-5, "weight_offset": 0.0, **({} if given else {"bias": None})}
        tensors |= {"bias": bias} if given else {}
        yield Case("rms_norm_linear", f"{rows} {deep} {wide}", tensors, numbers)


DENSE = "gap 0 shift 0"
"""Other layouts are made dense before a launch: one more of them is tried."""


def drawn(built: Built, dtype: torch.dtype, device: str, judged: HELD, family: Any) -> int:
    """The cases of a family that Triton's kernels take; how many there were."""
    table: dict[str, Any] = {op: _launching(one, built) for op, one in kernels().items()}
    by_table = TritonOps(built.profile, run=built.run)
    tried = 0
    for case in family(dtype):
        function = table.get(case.op) or getattr(by_table, case.op)
        fp8 = case.op.endswith(("_quant", "_quant_dynamic"))
        if "gap" in case.name and not any(one in case.name for one in (DENSE, "gap 3")):
            continue
        if fp8 and built.profile.arch < FP8_ARCH:
            continue
        moved = case.to(device)
        judged(moved, results(function, moved))
        tried += 1
    return tried


def _launching(function: Callable[..., Any], built: Built) -> Callable[..., Any]:
    return lambda **given: function(**given, through=built.through)


def attention(built: Built, dtype: torch.dtype, device: str, judged: HELD) -> int:
    """Both forms on mixed steps and on decode steps, with what a window and a cap change."""
    ops, tried = TritonOps(built.profile, run=built.run), 0
    keys, dim = random.randrange(1, 4), random.choice((32, 64, 80, 128))
    heads = Heads(keys * random.randrange(1, 5), keys, dim)
    mixed = [(random.randrange(30, 200), random.randrange(1, 30)) for _ in range(3)]
    for sequences in (mixed, [(random.randrange(1, 900), 1) for _ in range(3)]):
        batch = paged_batch(heads, sequences, dtype, width=64)
        tensors = {"q": batch.q, "kv_cache": batch.kv_cache, "block_table": batch.block_table}
        tensors |= {"seq_lens": batch.seq_lens, "query_start": batch.query_start}
        rule = {"scale": dim**-0.5, "sliding_window": random.choice((0, 37)), "soft_cap": 20.0}
        out = torch.zeros(batch.q.shape, dtype=dtype)
        plain = Case("paged_attention", f"{heads} {sequences}", {**tensors, "out": out}, rule)
        quant = {**tensors, "out": out.to(FP8), "out_scale": torch.tensor([0.004])}
        for case in (plain, Case("paged_attention_quant", plain.name, quant, rule)):
            if case is not plain and built.profile.arch < FP8_ARCH:
                continue
            moved = case.to(device)
            judged(moved, results(getattr(ops, case.op), moved))
            tried += 1
    return tried


def held_attention(case: Case, got: tuple[Tensor, ...]) -> None:
    """Beside attention whose products are of the type, as ours are; then quantised, or not."""
    given, mine = case.tensors, got[-1]
    order = ("q", "kv_cache", "block_table", "seq_lens", "query_start")
    rest = (case.numbers["scale"], case.numbers["sliding_window"], case.numbers["soft_cap"])
    exact = torch.zeros_like(given["q"], dtype=torch.float32)
    inputs = [given[name] for name in order]
    wide = (one.float() if one.is_floating_point() else one for one in inputs)
    native_torch.paged_attention(*wide, exact, *rest)
    peer = torch.zeros_like(given["q"])
    plain_attention(*inputs, peer, *rest)
    if case.op == "paged_attention":
        held(mine, exact, peer)
        return
    scale = given["out_scale"]
    values = (mine, quantised(peer, scale), (exact / scale).clamp(-448, 448))
    floor = FLIPPED + 64 * EPS[peer.dtype] / 448
    judge_one(f"{case.op} {case.name}", tuple(one.double() for one in values), 2.0**-3, floor)


def experts(built: Built, dtype: torch.dtype, device: str, judged: HELD) -> int:
    """Gated experts of drawn sizes, with an expert that no row takes."""
    from support.expert_cases import plain

    rows, count, top_k = tokens(), random.randrange(3, 40), random.randrange(1, 3)
    hidden, inner = random.randrange(17, 200), random.randrange(9, 150)
    x = torch.randn(rows, hidden).to(dtype)
    gate_up = (torch.randn(count, 2 * inner, hidden) / hidden**0.5).to(dtype)
    down = (torch.randn(count, hidden, inner) / inner**0.5).to(dtype)
    logits = torch.stack([torch.randperm(count) for _ in range(rows)]).float()
    logits[:, -1] = -30.0
    weights, ids = native_experts.topk_softmax(logits, top_k, True)
    tensors = {"x": x, "gate_up": gate_up, "down": down, "weights": weights, "ids": ids}
    case = Case("moe_experts", f"{rows} {count} {top_k} {hidden} {inner}", tensors).to(device)
    found = results(_launching(kernels()["moe_experts"], built), case)
    if judged is not judge:
        judged(case, found)
    else:  # beside a loop over experts, which rounds where ours does
        given = list(case.tensors.values())
        exact = native_experts.moe_experts(*(one.float() for one in given[:3]), *given[3:])
        held(found[0], exact, plain(*given))
    return 1


def run(family: str, built: Built, dtype: torch.dtype, device: str, judged: HELD = judge) -> int:
    """One family; how many calls were held against the rule.

    Args:
        family: one of `FAMILIES`.
        built: compiles and launches.
        dtype: of the inputs.
        device: where tensors lie.
        judged: holds results; a dry run judges nothing.

    Raises:
        AssertionError: a result is outside the rule.
    """
    if family == "attention":
        return attention(built, dtype, device, held_attention if judged is judge else judged)
    if family == "experts":
        return experts(built, dtype, device, judged)
    return drawn(built, dtype, device, judged, CASES[family])


CASES: Mapping[str, Callable[[torch.dtype], Iterator[Case]]] = {
    one.__name__: one for one in (norms, gates, ropes, routers, projections)
}
FAMILIES = (*CASES, "attention", "experts")
DTYPES = ("bfloat16", "float16", "float32")


def on_device(family: str, dtype: str) -> int:
    """One family on the GPU, in a process of its own; how many calls there were.

    Raises:
        AssertionError: with the seed that everything was drawn from.
    """
    from vcc.engine.graphs.recorder.calls import open_driver
    from vcc.engine.torch_shim.profiles import PROFILES

    torch.set_num_threads(1)
    seed = torch.seed() % 2**31
    torch.manual_seed(seed)
    random.seed(seed)
    torch.zeros(1, device="cuda")  # torch's context is the device's own, which the driver opens
    open_driver(0)
    major, minor = torch.cuda.get_device_capability()
    built = Built(PROFILES[f"sm_{major}{minor}"], torch.cuda.synchronize)
    try:
        return run(family, built, getattr(torch, dtype), "cuda")
    except Exception as error:
        raise AssertionError(f"{family} {dtype}, seed {seed}: {error}") from error
