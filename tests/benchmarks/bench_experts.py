"""`vcc::moe_experts` on the CPU beside the loop of transformers' Mixtral, in one process.

Both get the same routes, and their calls are taken in turn: a ratio is the median of those of
neighbouring rounds, so that other work on the machine hits both. On a busy machine take `--threads
1`: the loop has many more parallel regions, whose threads wait for each other. Writes
docs/benchmarks/experts.json.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from measure import Pair, in_pairs, judged
from torch import Tensor
from transformers import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralExperts

from vcc.engine.ops.register import load_ops

TOKENS = (1, 8, 64, 512)
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
LIMIT = 1.0


@dataclass(frozen=True, slots=True)
class Layer:
    """Experts of a layer: how many there are, how many a row has, their widths."""

    experts: int
    top_k: int
    hidden: int
    width: int

    def __str__(self) -> str:
        return f"{self.top_k} of {self.experts} experts {self.hidden} x {self.width}"


LAYERS = (Layer(8, 2, 512, 1024), Layer(64, 8, 512, 192), Layer(4, 2, 2048, 1408))
"""As Mixtral's, few and wide; as Qwen3-MoE's, many and narrow; and large products, which libraries
compute at the speed of the machine too."""


def calls_of(layer: Layer, dtype: torch.dtype, tokens: int) -> tuple[Callable[[], Tensor], ...]:
    """Our operator and the loop, on drawn weights and routes."""
    config = MixtralConfig(
        hidden_size=layer.hidden,
        intermediate_size=layer.width,
        num_local_experts=layer.experts,
        num_experts_per_tok=layer.top_k,
    )
    config._experts_implementation = "eager"
    loop: Any = MixtralExperts(config).to(dtype)
    gate_up, down = (torch.nn.init.normal_(one, std=0.05) for one in loop.parameters())
    x = torch.randn(tokens, layer.hidden).to(dtype)
    scores = torch.randn(tokens, layer.experts).softmax(-1)
    weights, ids = scores.topk(layer.top_k)
    weights, narrow = weights / weights.sum(-1, keepdim=True), ids.int()
    return (
        lambda: torch.ops.vcc.moe_experts(x, gate_up, down, weights, narrow),
        lambda: loop(x, ids, weights.to(dtype)),
    )


def measured(
    ours: Callable[[], Tensor], peer: Callable[[], Tensor], options: argparse.Namespace
) -> Pair:
    """Both in turn; the benchmark ends where they compute something else."""
    found, wanted = ours().float(), peer().float()
    error = float((found - wanted).abs().max() / wanted.abs().max())
    if error > 0.05:
        sys.exit(f"the experts compute something else: error {error:.3g}")
    return in_pairs(ours, peer, options.rounds, options.seconds)


def main() -> int:
    """Measure, print, write; 1 when a ratio is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=0.03, help="of a round")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    backend = load_ops()
    rows: list[dict[str, Any]] = []
    for name, dtype in DTYPES.items():
        for layer in LAYERS:
            for tokens in TOKENS:
                row = {"dtype": name, "layer": str(layer), "tokens": tokens}
                found = measured(*calls_of(layer, dtype, tokens), options)
                rows.append({**row, **asdict(found)})
                print(rows[-1], flush=True)
    ratios = {
        f"{row['dtype']} {row['layer']}, {row['tokens']} tokens: vcc / loop": row["ratio"]
        for row in rows
    }
    return judged(
        "experts",
        "experts of a layer on the CPU beside the loop of transformers' Mixtral",
        ratios,
        LIMIT,
        operators=backend.reason,
        rounds=options.rounds,
        threads=torch.get_num_threads(),
        rows=rows,
    )


if __name__ == "__main__":
    sys.exit(main())
