"""Probes of what launches in a traced graph need of private torch."""

from __future__ import annotations

import inspect

import torch
from torch.fx import Graph

from vcc.engine.torch_shim import triton_nodes


def test_triton_nodes_keep_strides() -> None:
    """Inductor lowers a launch by the values under this name, and holds tensors to strides."""
    from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_mutation
    from torch._inductor.graph import GraphLowering

    text = inspect.getsource(GraphLowering.run_node)
    launches = text[text.index("user_defined_triton_kernel_layout_constraints") :]
    assert 'n.meta.get("eager_input_vals")' in launches
    assert "constrain_to_fake_tensors(" in launches
    graph, value = Graph(), torch.empty(2, 3).t()
    tensor = graph.placeholder("x")
    tensor.meta["val"] = value
    given = {"kernel_idx": 0, "grid": [(1, 1, 1)], "kwargs": {"x": tensor, "rows": 3}}
    launch = graph.call_function(triton_kernel_wrapper_mutation, (), given)
    triton_nodes.keep_strides(launch)
    args, kwargs = launch.meta["eager_input_vals"]
    assert args == ()
    assert kwargs["kwargs"]["x"] is value
    assert kwargs["kwargs"]["rows"] == 3
    triton_nodes.keep_strides(tensor)
    assert "eager_input_vals" not in tensor.meta
