"""A graph as a Python file of its own: readable, and runnable on the CPU with example inputs."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from vcc.engine.torch_shim.fake_calls import hinted
from vcc.engine.torch_shim.nodes import overload_name
from vcc.engine.torch_shim.triton_nodes import is_triton_launch
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

DELETION = re.compile(r";  (\w+ = )+None$")

FILL: Mapping[str, str] = {
    "slot_mapping": "arange",
    "query_start": "arange",
    "logits_index": "arange",
    "seq_lens": "ones",
}
"""Integers of the decoder's step that say which rows belong together; others are zeros."""


def script(traced: Traced, title: str, code: str = "") -> str:
    """The graph as a Python file.

    Args:
        traced: the graph.
        title: what it is.
        code: its forward, when that is not what the graph holds now.
    """
    body = "\n".join(f"    {line}" if line else "" for line in _readable(code or _code(traced)))
    lines = [HEAD.format(title=title), *_imports(traced), ""]
    lines += ["class Step(torch.nn.Module):", f'    """{title}."""', "", body, "", ""]
    lines += ["def example() -> dict[str, torch.Tensor]:", '    """One tensor for each input."""']
    lines += ["    return {", *_examples(traced), "    }"]
    return "\n".join(lines) + TAIL


def _code(traced: Traced) -> str:
    return str(traced.graph.code)


def _readable(code: str) -> Iterator[str]:
    """Lines of a forward: arguments wrapped, without the deletions that only save memory."""
    for line in code.strip("\n").splitlines():
        text = DELETION.sub("", line)
        if text.startswith("def "):
            start, _, rest = text.partition("(")
            yield f"{start}("
            arguments = rest.removesuffix("):")
            yield from textwrap.wrap(
                arguments, 90, initial_indent=" " * 4, subsequent_indent=" " * 4
            )
            yield "):"
        else:
            yield text


def _imports(traced: Traced) -> Iterator[str]:
    names = (overload_name(node.target) for node in traced.graph.graph.nodes)
    spaces = {name.partition("::")[0] for name in names if name}
    for space in sorted(spaces - {"aten", "prims", "vcc"}):
        yield f"# import the package that defines torch.ops.{space} here"
    if any(is_triton_launch(node) for node in traced.graph.graph.nodes):
        yield "# it launches Triton kernels, which exist only where they were traced: read it only"


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
    kind = FILL.get(placeholder.target, "zeros") if len(sizes) == 1 else "zeros"
    shape = text if kind == "arange" else f"[{text}]"
    return f"torch.{kind}({shape}).to({value.dtype})"
