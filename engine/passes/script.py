"""A graph as a Python file of its own: readable, and runnable on the CPU with example inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from vcc.engine.torch_shim.fake_calls import hinted
from vcc.engine.torch_shim.nodes import overload_name
from vcc.engine.types import Placeholder, Traced

HEAD = '''\
"""{title}; python {{this file}} runs it on example inputs, on the CPU."""

import operator  # noqa: F401
from math import inf, nan  # noqa: F401

import torch
from vcc.engine.ops.register import load_ops

load_ops()
torch.manual_seed(0)


def device(type: str = "cpu", index: int | None = None) -> torch.device:
    """Where the graph's own tensors lie: a dump runs without the target."""
    return torch.device("cpu")

'''

TAIL = """

if __name__ == "__main__":
    with torch.no_grad():
        for place, value in enumerate(Step()(**example())):
            print(place, value.dtype, list(value.shape), "sum", value.double().sum().item())
"""

FILL = {
    "slot_mapping": "torch.arange({0})",
    "query_start": "torch.arange({0})",
    "seq_lens": "torch.ones({0})",
}
"""Integers of the decoder's step that say which rows belong together; others are zeros."""


def script(traced: Traced, title: str, code: str = "") -> str:
    """The graph as a Python file.

    Args:
        traced: the graph.
        title: what it is.
        code: its forward, when that is not what the graph holds now.
    """
    found = (code or traced.graph.code).strip("\n")
    body = "\n".join(f"    {line}" if line else "" for line in found.splitlines())
    lines = [HEAD.format(title=title), *_imports(traced), ""]
    lines += ["class Step(torch.nn.Module):", f'    """{title}."""', "", body, "", ""]
    lines += ["def example() -> dict[str, torch.Tensor]:", '    """One tensor for each input."""']
    lines += ["    return {", *_examples(traced), "    }"]
    return "\n".join(lines) + TAIL


def _imports(traced: Traced) -> Iterator[str]:
    names = (overload_name(node.target) for node in traced.graph.graph.nodes)
    spaces = {name.partition("::")[0] for name in names if name}
    for space in sorted(spaces - {"aten", "prims", "vcc"}):
        yield f"# import the package that defines torch.ops.{space} here"


def _examples(traced: Traced) -> Iterator[str]:
    nodes = {node.name: node for node in traced.graph.graph.nodes if node.op == "placeholder"}
    for placeholder in traced.placeholders:
        value = nodes[placeholder.name].meta.get("val")
        yield f"        {nodes[placeholder.name].target!r}: {_example(placeholder, value)},"


def _example(placeholder: Placeholder, value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    sizes = [hinted(size) for size in value.shape]
    text = ", ".join(map(str, sizes))
    if value.dtype.is_floating_point:
        return f"torch.randn([{text}]).to({value.dtype})"
    form = FILL.get(placeholder.target, "torch.zeros({0})")
    if len(sizes) != 1:
        form, text = "torch.zeros({0})", f"[{text}]"
    return f"{form.format(text)}.to({value.dtype})"
