"""Runs the node table of a plain forward by Triton's interpreter: inputs in, outputs out.

    TRITON_INTERPRET=1 python -m support.interpreted_forward FOLDER

FOLDER is what `computed` left. Memory that was never written is NaN, and every access is checked
to lie in the regions that its node has pointers to.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from support.flow import ask
from support.interpreted import run_interpreted
from vcc.engine.compile.gpu import device_profile
from vcc.engine.events import NullEvents
from vcc.engine.graphs.expr import evaluate_all
from vcc.engine.graphs.host_memory import HostMemory
from vcc.engine.graphs.planner.content import GpuContent, read, write
from vcc.engine.graphs.planner.process import plan_in_child
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.types import NodeTable, Role
from vcc.engine.models.expression_text import parse
from vcc.engine.models.expressions import ChannelsLast
from vcc.engine.models.turned import parameter_of
from vcc.engine.request import settle
from vcc.engine.runtime.player.forward import sizes_of

CONTENT = "content"


def computed(
    folder: Path,
    model: object,
    weights: Mapping[str, Tensor],
    batches: Sequence[Mapping[str, Tensor]],
    **options: object,
) -> list[list[Tensor]]:
    """Outputs of each batch, in order.

    Args:
        folder: empty.
        model: as on the command line.
        weights: parameters and buffers by their names in the traced module, of the dtype.
        batches: inputs by name.
        options: fields of ModelOptions; the dtype is fp32 unless it is among them.
    """
    asked = settle(ask(model, target="sm_90", **{"dtype": "fp32", **options}))
    (folder / CONTENT).mkdir()
    write(plan_in_child(asked, device_profile(asked), NullEvents()), folder / CONTENT)
    save_file({n: one.contiguous().clone() for n, one in weights.items()}, folder / "weights")
    for index, batch in enumerate(batches):
        save_file({n: one.contiguous() for n, one in batch.items()}, folder / f"in{index}")
    run_interpreted("interpreted_forward", str(folder))
    found = [load_file(folder / f"out{index}") for index in range(len(batches))]
    return [[one[str(place)] for place in range(len(one))] for one in found]


def main(folder: Path) -> None:
    """Run every batch of a folder."""
    from vcc.engine.graphs.interpret import Interpreter, Shape
    from vcc.engine.torch_shim.interpreted_bf16 import exact_bf16

    torch.set_num_threads(1)
    content, weights = read(folder / CONTENT), load_file(folder / "weights")
    table = decode(content.steps[0].table)
    (folder / "kernels").mkdir()
    interpreter = Interpreter(table, content.sources, folder / "kernels")
    memory = HostMemory(table, {symbol.name: symbol.high for symbol in table.symbols})
    for one in table.tensors:
        if one.role is Role.WEIGHT:
            _place(memory, table, one.name).copy_(_weight(content, weights, one.target))
        elif one.role is Role.CONSTANT:
            memory.tensor(one)[:] = np.frombuffer(content.constants[one.target], np.uint8)
    for index in range(len(list(folder.glob("in*")))):
        given = load_file(folder / f"in{index}")
        memory.begin(sizes_of(table, {name: tuple(one.shape) for name, one in given.items()}))
        for name, one in given.items():
            _place(memory, table, name).copy_(one)
        with exact_bf16():
            for _ in interpreter.segments(memory, Shape(uniform=False)):
                pass
        names = [one.name for one in table.tensors if one.role is Role.OUTPUT]
        found = {str(n): _place(memory, table, name).clone() for n, name in enumerate(names)}
        save_file(found, folder / f"out{index}")


def _weight(content: GpuContent, weights: Mapping[str, Tensor], target: str) -> Tensor:
    """A weight as it lies in the table."""
    text = content.info.get("turned", {}).get(target)
    if text is None:
        return weights[target]
    binding = parse(text)
    assert isinstance(binding, ChannelsLast)
    return weights[parameter_of(binding)].movedim(1, -1)


def _place(memory: HostMemory, table: NodeTable, name: str) -> Tensor:
    """A tensor of the table at the sizes of the step."""
    from vcc.engine.graphs.interpreted_products import as_torch

    (one,) = (tensor for tensor in table.tensors if tensor.name == name)
    flat = as_torch(memory.tensor(one), one.dtype)
    return flat.view(evaluate_all(one.shape, memory.sizes))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
