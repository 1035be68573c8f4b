"""Products recorded, by cuBLASLt itself, or from the store without it: gemm_process.py WORD ARGS.

record ANSWER MAPS  < job     as vcc.engine.tune.helper, and what addresses the process had
reference ROOT OUT.npz < job  each product of a job, computed by the library as the store has it
replay ROOT OUT.npz < job     the same inputs through stored nodes, at other addresses
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from vcc.engine.graphs.recorder.calls import open_driver
from vcc.engine.graphs.recorder.replay import DeviceBytes, Functions, Replay, fill, read, write
from vcc.engine.graphs.table.decode import decode
from vcc.engine.tune.command import this_gpu
from vcc.engine.tune.job import Job
from vcc.engine.tune.operands import operands_of
from vcc.engine.tune.record import D, operand_sizes
from vcc.engine.tune.shapes import GemmShape
from vcc.engine.tune.store import GemmEntry, GemmStore


def placed(stack: ExitStack, shape: GemmShape, workspace: int) -> list[int]:
    """Operands on the device, the same values for the same shape; the result is poisoned."""
    sizes = operand_sizes(shape, workspace)
    at = [stack.enter_context(DeviceBytes(size)).address if size else 0 for size in sizes]
    for index, data in operands_of(shape, seed=shape.m).items():
        write(at[index], data)
    fill(at[D], 0xEE, sizes[D])
    return at


def record(job: Job, answer: str, maps: str) -> None:
    from vcc.engine.tune.helper import run_job

    Path(answer).write_text(json.dumps(run_job(job).as_dict()))
    Path(maps).write_text(Path("/proc/self/maps").read_text())


def reference(shapes: tuple[GemmShape, ...], root: str, out: str) -> None:
    """Where the store keeps the choice with a small workspace, that one."""
    from vcc.engine.graphs.recorder.calls import open_cublaslt, run_product, workspace_bytes

    open_cublaslt()
    stored = {one.shape: one for one in GemmStore(Path(root)).entries(this_gpu(0), shapes)}
    found = {}
    for shape in shapes:
        with ExitStack() as stack:
            space = workspace_bytes(shape)
            small = shape in stored and stored[shape].workspace < space
            at = placed(stack, shape, space)
            run_product(shape, at, small=small)
            found[str(shape)] = read(at[D], operand_sizes(shape, 0)[D])
    np.savez(out, **found)


def replay(shapes: tuple[GemmShape, ...], root: str, out: str) -> None:
    entries = {one.shape: one for one in GemmStore(Path(root)).entries(this_gpu(0), shapes)}
    found = {}
    with ExitStack() as before:
        before.enter_context(
            DeviceBytes(77 << 20)
        )  # everything lies elsewhere than in the reference
        for shape in shapes:
            with ExitStack() as stack:
                found[str(shape)] = replayed(stack, entries[shape])
    mapped = Path("/proc/self/maps").read_text()
    assert "libcublas" not in mapped
    assert "torch" not in sys.modules
    np.savez(out, **found)


def replayed(stack: ExitStack, entry: GemmEntry) -> np.ndarray:
    table = decode(entry.table)
    spaces = [int(one.size) for one in table.regions if one.index == 4]
    at = placed(stack, entry.shape, sum(spaces))
    if spaces:
        fill(at[4], 0xFF, spaces[0])
    made = Replay(Functions(entry.cubins))
    made.add(table, [at[region.index] for region in table.regions], {})
    made.instantiate().launch()
    made.close()
    return read(at[D], operand_sizes(entry.shape, 0)[D])


if __name__ == "__main__":
    asked = Job.parse(sys.stdin.read())
    if sys.argv[1] == "record":
        record(asked, *sys.argv[2:4])
    elif sys.argv[1] == "reference":
        open_driver(0)
        reference(asked.shapes, *sys.argv[2:4])
    else:
        open_driver(0)
        replay(asked.shapes, *sys.argv[2:4])
