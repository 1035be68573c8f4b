"""The launch of `rope_kv_write`: rotation and KV write of a row in one program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcc.engine.graphs.table.types import READ, WRITE
from vcc.engine.ops.triton import rope
from vcc.engine.ops.triton.kv_sizes import (
    aligned_plane,
    cache_dtype,
    plane,
    scale_pointers,
    without_scale,
)
from vcc.engine.ops.triton.sizes import head_sizes, power_of_two
from vcc.engine.ops.triton.specs import POINTER_TYPES, Facts, KernelSpec, Launches, OpLaunch


def rope_kv_write(literals: Mapping[str, Any], facts: Facts) -> Launches:
    """The launch of one call.

    Args:
        literals: `head_dim`, and a TensorLayout for each tensor argument.
        facts: model and device.
    """
    q, key, value = (literals[name] for name in ("q", "k", "v"))
    types = dict.fromkeys(("q", "k", "v"), POINTER_TYPES[facts.dtype])
    types |= dict.fromkeys(("cos", "sin"), POINTER_TYPES["float32"])
    stored, scale = POINTER_TYPES[cache_dtype(literals, facts)], scale_pointers(literals)
    types |= {"kv_cache": stored, "slot_mapping": POINTER_TYPES["int32"], "q_out": types["q"]}
    types |= dict.fromkeys(scale, POINTER_TYPES["float32"])
    spec = KernelSpec(
        rope.rope_kv_write,
        (*types.items(), ("plane", "i64")),
        {
            **head_sizes(q.width, key.width, literals["cos"].width, literals["head_dim"]),
            "WIDTH_LANES": power_of_two(key.width),
            "Q_STRIDE": q.row_stride,
            "K_STRIDE": key.row_stride,
            "V_STRIDE": value.row_stride,
            **without_scale(literals),
        },
        frozenset((*types, *aligned_plane(key.width, facts))),
        num_warps=4,
    )
    arguments = {name: name for name in types} | {"plane": plane(key.width, facts)}
    access = dict.fromkeys(types, READ) | {"kv_cache": WRITE, "q_out": WRITE}
    return Launches((OpLaunch(spec, ("T", 1, 1), arguments, access),))
