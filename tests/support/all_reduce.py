"""`vcc::all_reduce_rms_norm` as a stand-in, and what its fusion does: JSON on standard output.

The stand-in sums nothing, as one process has one rank; neither do the collectives that it replaces.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.distributed as dist

from support.toys import rows, traced
from vcc.engine.config.types import CompilationConfig, ParallelConfig, PassConfig
from vcc.engine.ops.register import load_ops
from vcc.engine.passes.all_reduce_norm import FUSE_ALL_REDUCE_NORM
from vcc.engine.passes.apply import apply
from vcc.engine.passes.base import PassContext
from vcc.engine.passes.prove import prove
from vcc.engine.types import Traced

SCHEMA = (
    "all_reduce_rms_norm(Tensor x, Tensor residual, Tensor weight, str group, float eps,"
    " float weight_offset) -> (Tensor, Tensor)"
)


def define() -> torch.library.Library:
    load_ops()
    library = torch.library.Library("vcc", "FRAGMENT")
    library.define(SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))
    fused = torch.ops.vcc.fused_add_rms_norm

    def run(x: Any, residual: Any, weight: Any, group: str, eps: float, offset: float) -> Any:
        return fused(x, residual, weight, eps, offset)

    library.impl("all_reduce_rms_norm", run, "CompositeExplicitAutograd")
    return library


def model(m: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
    ops = torch.ops._c10d_functional
    summed = ops.wait_tensor(ops.all_reduce(x, "sum", GROUP))
    return torch.ops.vcc.fused_add_rms_norm(summed, y, m.w, 1e-6)


def graph() -> Traced:
    weight = torch.nn.Parameter(torch.ones(8), requires_grad=False)
    return traced(model, {"x": rows(6, 8), "y": rows(6, 8).flip(0)}, w=weight)


def context(ranks: int, tokens: int) -> PassContext:
    asked = CompilationConfig(pass_config=PassConfig(fuse_all_reduce_norm=True))
    return PassContext(asked, tokens=(1, tokens), parallel=ParallelConfig(tp=ranks))


if __name__ == "__main__":
    LIBRARY = define()
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    GROUP = dist.group.WORLD.group_name
    found: dict[str, Any] = {}
    for ranks, tokens in ((2, 512), (2, 513), (1, 512)):
        (report,) = apply(graph(), [FUSE_ALL_REDUCE_NORM], context(ranks, tokens)).reports
        name = f"{ranks} rank{'s' * (ranks > 1)}, {tokens} tokens"
        found[name] = [report.matches, report.skipped]
    found["equal"] = prove(graph(), FUSE_ALL_REDUCE_NORM, context(2, 512)).exact
    dist.destroy_process_group()
    json.dump(found, sys.stdout)
