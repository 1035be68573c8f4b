"""Run a build's goldens by Triton's interpreter: `python -m support.interpreted_goldens FOLDER`.

FOLDER has what a build in fp32 left. Prints JSON: what is wrong with each piece's results, or null.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from vcc.engine.graphs.drawn_bytes import draw_bytes, widened
from vcc.engine.graphs.golden import Golden, exceeds
from vcc.engine.graphs.host_memory import HostMemory
from vcc.engine.graphs.interpret import Interpreter, Shape
from vcc.engine.graphs.planner.content import GpuContent, read
from vcc.engine.graphs.table.decode import decode


def why(content: GpuContent, piece: str, golden: Golden, folder: Path) -> str | None:
    """The first output that is outside its bound."""
    table = decode(golden.table)
    memory = HostMemory(table, {})
    tensors = {one.name: one for one in table.tensors}
    first = len(golden.arguments) - len(golden.references)
    for index, one in enumerate(golden.arguments[:first]):
        data = draw_bytes(piece, index, one, golden.below)
        memory.tensor(tensors[str(index)])[:] = data
    for _ in Interpreter(table, content.sources, folder).segments(memory, Shape(uniform=False)):
        pass
    for index, (reference, bound) in enumerate(zip(golden.references, golden.bounds, strict=True)):
        one = golden.arguments[first + index]
        flat = widened(memory.tensor(tensors[str(first + index)]), one.dtype)
        steps = [4 * step for step in golden.strides[index]]
        got = np.lib.stride_tricks.as_strided(flat, one.shape, steps)
        if said := exceeds(got, reference, bound):
            return f"output {index}: {said}"
    return None


def main() -> None:
    """Every golden of the folder."""
    content = read(Path(sys.argv[1]))
    folder = Path(sys.argv[1]) / "interpreted"
    folder.mkdir()
    found = {
        piece: why(content, piece, Golden.decode(data), folder)
        for piece, data in content.goldens.items()
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
