"""Probes of putting a call's graph in its place, and of reading launches."""

from __future__ import annotations

from typing import Any

from support.cuda_child import in_a_gpu_build
from support.toys import rows, traced

from vcc.engine.passes.rewrite import fake_value
from vcc.engine.torch_shim import inline, triton_nodes
from vcc.engine.torch_shim.nodes import overload_name


def of_toy() -> Any:
    import torch

    graph = traced(lambda m, x: torch.ops.toy.pair(x)[1] * 2, {"x": rows()}, {"x": {0: "T"}})
    node = next(n for n in graph.graph.graph.nodes if "pair" in str(n.target))
    return graph, node


def test_inline_traced_call() -> None:
    """One input for each tensor; sizes are read off it and stay symbols."""
    _, node = of_toy()
    made = inline.traced_call(lambda x: (x + 1, x.new_empty(x.shape[0], 3)), node)
    inputs = [n for n in made.graph.nodes if n.op == "placeholder"]
    names = [overload_name(n.target) for n in made.graph.nodes]
    assert len(inputs) == 1
    assert "aten::sym_size.int" in names
    assert "aten::new_empty.default" in names


def test_inline_inline() -> None:
    """Readers of an item read what stands for it; the call is gone and every node has a value."""
    import torch

    graph, node = of_toy()
    inline.inline(node, inline.traced_call(lambda x: (x + 1, x * x), node), fake_value)
    graph.graph.recompile()
    graph.graph.graph.lint()
    names = [overload_name(n.target) for n in graph.graph.graph.nodes]
    assert "toy::pair.default" not in names
    calls = [n for n in graph.graph.graph.nodes if n.op == "call_function"]
    assert all("val" in n.meta for n in calls)
    assert torch.equal(graph.graph(rows())[0], rows() * rows() * 2)


def launches() -> Any:
    import torch

    from vcc.engine.ops.triton import wrapped

    def model(m: Any, x: torch.Tensor) -> torch.Tensor:
        return wrapped.silu_and_mul(x)

    graph = traced(model, {"x": rows(6, 8)}, {"x": {0: "T"}}).graph.graph
    return next(node for node in graph.nodes if triton_nodes.is_triton_launch(node))


def test_triton_nodes_launched_kernel() -> None:
    found = in_a_gpu_build(lambda: triton_nodes.launched_kernel(launches()))
    assert found == "vcc.engine.ops.triton.activation:silu_and_mul"


def test_triton_nodes_launch_arguments() -> None:
    """Tensors as nodes, and constants, by the names of the kernel."""

    def body() -> Any:
        given = triton_nodes.launch_arguments(launches())
        return [sorted(given), given["WIDTH"], given["x"].op, given["out"].op]

    names, width, source, result = in_a_gpu_build(body)
    assert names == ["LANES", "WIDTH", "out", "x"]
    assert (width, source, result) == (4, "placeholder", "call_function")
