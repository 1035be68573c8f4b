"""Products of the GEMM store beside torch's, over the same tensors of one process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vcc.engine.tune.shapes import GemmShape
from vcc.engine.tune.store import GemmEntry, GemmStore


class Stored:
    """What a recording of these shapes gave.

    Attributes:
        entries: by shape.
        why: of the shapes that have none.
    """

    def __init__(self, shapes: Sequence[GemmShape]) -> None:
        from vcc.cache.errors import VccError
        from vcc.engine.tune.command import record_apart, this_gpu
        from vcc.engine.tune.job import Job

        self.entries: Mapping[GemmShape, GemmEntry] = {}
        self.why: dict[GemmShape, str] = {}
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "store"
            try:
                answer = record_apart(Job(root, tuple(shapes)))
            except VccError as error:
                self.why = dict.fromkeys(shapes, f"nothing was recorded: {error}")
                return
            self.why = {one.shape: one.why for one in answer.refused}
            test = answer.self_test
            if test is not None and not test.passed:
                self.why |= dict.fromkeys(shapes, f"the self-test failed: {test.why}")
            found = GemmStore(root).entries(this_gpu(0), shapes)
        self.entries = {one.shape: one for one in found}

    def lacking(self, shape: GemmShape) -> str:
        """Why there is no entry; empty where there is one."""
        if shape in self.entries:
            return ""
        return self.why.get(shape, "the recording does not have it")


def replay(
    entry: GemmEntry,
    a: Any,
    weights: Sequence[Any],
    scales: Sequence[Any],
    out: Any,
    beside: Callable[[], float],
) -> tuple[float, float, Any]:
    """Microseconds of one product, from a graph of one for each weight, and the first's result.

    Each writes to a place of its own, as torch's do, whose results are kept.

    Args:
        entry: of the store.
        a, weights, scales: tensors of the device; scales of a, and of w.
        out: dtype of the results.
        beside: a round of what they are compared with; rounds take turns, as clocks change.

    Returns:
        Medians of what they are compared with and of these, and a result.
    """
    import torch
    from support.op_bench import REPLAYS, ROUNDS, median

    from vcc.engine.graphs.recorder.calls import open_driver
    from vcc.engine.graphs.recorder.replay import Functions, Replay
    from vcc.engine.graphs.table.decode import decode

    open_driver(0)
    table, shape = decode(entry.table), entry.shape
    made = [torch.empty(shape.m, shape.n, dtype=out, device="cuda") for _ in weights]
    space = torch.empty(max(1, entry.workspace), dtype=torch.uint8, device="cuda")
    graph = Replay(Functions(entry.cubins))
    torch.cuda.synchronize()
    try:
        for weight, result in zip(weights, made, strict=True):
            parts = (a, weight, None, result, space, *scales)
            at = [0 if one is None else one.data_ptr() for one in parts]
            graph.add(table, [at[region.index] for region in table.regions], {})
        graph.instantiate().launch()
        rounds = [(beside(), graph.launch(REPLAYS) / len(weights)) for _ in range(ROUNDS)]
    finally:
        graph.close()
    others, spans = (median(list(one)) for one in zip(*rounds, strict=True))
    return others, spans, made[0]
