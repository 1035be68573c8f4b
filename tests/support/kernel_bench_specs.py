"""What bench_kernels launches, as specialisations: to compile them ahead, side by side."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from support.kernel_bench_shapes import (
    DECODE_CANDIDATES,
    DECODE_SHAPES,
    LINEAR_ROWS,
    LINEAR_SHAPES,
    PREFILL_CANDIDATES,
    PREFILL_SHAPES,
    linear_candidates,
)
from support.paged import Heads
from vcc.engine.ops.triton import registry
from vcc.engine.ops.triton.gemm import linear_spec, reduce_spec
from vcc.engine.ops.triton.linear_configs import splits_for, tiles_for
from vcc.engine.torch_shim.profiles import PROFILES

PROFILE = PROFILES["sm_90"]
NAME = "bfloat16"


class choose:
    """While it is entered, the registry takes this configuration of an attention kernel."""

    def __init__(self, name: str, config: Any) -> None:
        self.name, self.config, self.before = name, config, getattr(registry, name)

    def __enter__(self) -> None:
        setattr(registry, self.name, lambda *_: self.config)

    def __exit__(self, *_: object) -> None:
        setattr(registry, self.name, self.before)


def every_spec() -> Iterator[Any]:
    """Each kernel that the benchmark launches on a device, once."""
    seen = set()
    for spec in _specs():
        if spec.key() not in seen:
            seen.add(spec.key())
            yield spec


def _specs() -> Iterator[Any]:
    yield from _linear_specs()
    for shapes, candidates, which in (
        (PREFILL_SHAPES, PREFILL_CANDIDATES, "prefill_config"),
        (DECODE_SHAPES, DECODE_CANDIDATES, "decode_config"),
    ):
        for (heads, length, _), config in itertools.product(shapes, candidates):
            with choose(which, config):
                plan = _attention(heads, length)
            wanted = plan.launches[2:] if which == "prefill_config" else plan.launches[:2]
            yield from (launch.kernel for launch in wanted)
    for vocab in (128256, 32000):
        facts = registry.Facts(NAME, PROFILE, 16, 1, vocab)
        yield from (launch.kernel for launch in registry.sample_launches(facts).launches)


def _linear_specs() -> Iterator[Any]:
    for (n, k), rows in itertools.product(LINEAR_SHAPES, LINEAR_ROWS):
        own = [(tile, splits_for(tile, n, k, PROFILE)) for tile in tiles_for(PROFILE, NAME, n)]
        for tile, parts in (*own, *linear_candidates(rows, n, k)):
            yield linear_spec(NAME, tile, False, parts > 1, aligned=True)
            if parts > 1:
                yield reduce_spec(NAME, parts, False, aligned=True)


def _attention(heads: Heads, length: int) -> registry.Launches:
    width, kv_width = heads.query * heads.dim, heads.key * heads.dim
    literals = {
        "q": registry.TensorLayout(("T", width), (width + 2 * kv_width, 1)),
        "kv_cache": registry.TensorLayout((2, "K", 16, heads.key, heads.dim)),
        "out": registry.TensorLayout(("T", width)),
        "scale": heads.dim**-0.5,
    }
    facts = registry.Facts(NAME, PROFILE, 16, -(-length // 16) + 1)
    return registry.launches("paged_attention", literals, facts)


def warm(share: int, shares: int) -> None:
    """Compile one share of all kernels into Triton's cache as a launch on this device would."""
    for spec in itertools.islice(every_spec(), share, None, shares):
        arguments = [
            DTYPES.get(kind, 1 << 16 if parameter in spec.aligned else 3)
            for parameter, kind in spec.parameters
        ]
        options = {"num_warps": spec.num_warps, "num_stages": spec.num_stages}
        try:
            spec.function.warmup(*arguments, **spec.constants, **options, grid=(1,))
        except Exception as error:  # its launch says more
            print(spec.function, str(error)[:300])


def compile_all(share: int, shares: int) -> list[str]:
    """The same for sm_90 without a device; what fails, or takes more memory than there is."""
    bad = []
    for spec in itertools.islice(every_spec(), share, None, shares):
        try:
            if spec.compile(PROFILE).shared > PROFILE.shared_per_block_optin:
                bad.append(f"{spec.key()} takes too much shared memory")
        except Exception as error:
            bad.append(f"{spec.key()}: {getattr(error, 'why', error)}"[:400])
    return bad


DTYPES = {f"*{kind}": getattr(torch, name) for kind, name in (
    ("bf16", "bfloat16"), ("fp32", "float32"), ("i32", "int32"), ("i64", "int64")
)}  # fmt: skip
