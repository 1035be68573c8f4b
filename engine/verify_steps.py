"""The child of `vcc verify --interpret`: steps of a node table beside the model, call by call.

Runs as `python -m vcc.engine.verify_steps FOLDER` with Triton's interpreter switched on. FOLDER has
the job and what a build left (`planner.content`), and gets the result.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vcc.cache.errors import DeviceError, VccError
from vcc.engine.config.parse import parse_config
from vcc.engine.config.target import Target
from vcc.engine.graphs.check_batches import CheckStep, Limits, Sequences, blocks_for, schedule
from vcc.engine.graphs.expr import evaluate, evaluate_all
from vcc.engine.graphs.host_memory import PERMANENT, HostMemory
from vcc.engine.graphs.interpret import Interpreter, Shape, as_torch
from vcc.engine.graphs.planner.content import GpuContent, read
from vcc.engine.graphs.program import Call
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.layout import DTYPES
from vcc.engine.graphs.table.types import RegionKind, Role, Segment, SegmentKind, TableTensor
from vcc.engine.models.architectures import spec_of
from vcc.engine.native import die_with_parent
from vcc.engine.trace.decoder import StepShape
from vcc.engine.verify_eager import EagerStep, Values, eager_step
from vcc.engine.verify_job import CONTENT, RESULT, Job, Mismatch, Outcome, StepResult

SHARE = 1e-4
"""The numbers rule for fp32: largest error as a share of the largest reference value."""

KINDS: Mapping[str, SegmentKind] = {"piece": SegmentKind.PIECE, "op": SegmentKind.OP}

GREEDY: Mapping[str, float] = {"temperature": 0, "top_p": 1, "top_k": 0, "seed": 0}


Ran = tuple[tuple[str, ...], Call, dict[str, torch.Tensor]]
"""Values that a call of the table gives, the model's call, and the model's values after it."""


class Different(Exception):
    """Ends a check with what differs."""

    def __init__(self, mismatch: Mismatch) -> None:
        super().__init__(mismatch.name)
        self.mismatch = mismatch


class Checker:
    """A table and the model beside each other, over the same sequences.

    Args:
        content: the build's result, in fp32.
        eager: the model.
        limits: of a step.
        blocks: KV blocks.
        folder: for rewritten kernels.
    """

    def __init__(
        self, content: GpuContent, eager: EagerStep, limits: Limits, blocks: int, folder: Path
    ) -> None:
        self._content, self._eager = content, eager
        self._table = decode(content.table)
        self._tensors = {tensor.name: tensor for tensor in self._table.tensors}
        self._interpreter = Interpreter(self._table, content.sources, folder)
        self._sequences = Sequences(limits, blocks, eager.spec.vocab)
        largest = {"T": limits.max_tokens, "B": limits.max_seqs, "K": blocks}
        self._memory = HostMemory(self._table, largest)
        shape = eager.spec.kv_shape(blocks, limits.block_size)
        # NaN, so that a read of anything that was never written shows.
        self._caches = [torch.full(shape, float("nan")) for _ in range(eager.spec.layers)]
        self._bind()

    def step(self, step: CheckStep) -> Iterator[StepResult]:
        """Run a step by every kind of graph that may run it.

        Raises:
            Different: the first value that is not the model's.
        """
        inputs = self._sequences.inputs(step, ahead=1)
        for uniform in (True, False) if step.decode else (False,):
            yield self._run(step, inputs, Shape(uniform=uniform))

    def loop(self, step: CheckStep) -> Iterator[StepResult]:
        """A decode step with sampling, then one more that the device makes of its result."""
        inputs = self._sequences.inputs(step, ahead=2)
        yield self._run(step, inputs, Shape(uniform=True, sample=True))
        token = self._read("token").tolist()
        given = {sequence: [token[i]] for i, sequence in enumerate(step.work)}
        wanted = self._sequences.inputs(step, given, ahead=1)
        yield self._run(step, wanted, Shape(uniform=True, advance=True, sample=True))

    def _bind(self) -> None:
        for tensor in self._table.tensors:
            if tensor.role is Role.WEIGHT:
                self._read(tensor.name).copy_(self._eager.weights[tensor.target])
            elif tensor.role is Role.CONSTANT:
                data = np.frombuffer(self._content.constants[tensor.target], np.uint8)
                self._memory.tensor(tensor)[:] = data

    def _read(self, name: str) -> torch.Tensor:
        tensor: TableTensor = self._tensors[name]
        flat = as_torch(self._memory.tensor(tensor), tensor.dtype)
        return flat.view(evaluate_all(tensor.shape, self._memory.sizes))

    def _run(self, step: CheckStep, inputs: Mapping[str, Any], shape: Shape) -> StepResult:
        sizes = {"T": step.tokens, "B": step.seqs, "K": len(self._caches[0][0])}
        keep = (*PERMANENT, RegionKind.IO) if shape.advance else PERMANENT
        self._memory.begin(sizes, keep)
        if not shape.advance:
            self._write(step, inputs, shape)
        given = {name: torch.from_numpy(array) for name, array in inputs.items()}
        graph = "loop" if shape.sample else "decode" if shape.uniform else "mixed"
        found = _Comparison(step.name, graph)
        self._segments(given, shape, found)
        if shape.advance:
            self._compare_inputs(step, given, found)
        logits = self._eager.logits(given, self._caches)
        rows, got = len(step.work), self._read("logits")
        found.logits(got[:rows], logits[:rows])
        if shape.sample:
            found.equal("token", self._read("token")[:rows].long(), got[:rows].argmax(-1))
        counts = (found.compared, found.unmatched)
        return StepResult(step.name, graph, step.tokens, step.seqs, *counts, found.worst)

    def _write(self, step: CheckStep, inputs: Mapping[str, Any], shape: Shape) -> None:
        for name, array in inputs.items():
            self._read(name).copy_(torch.from_numpy(array))
        if shape.sample:
            active = np.arange(step.seqs) < len(step.work)
            numbers = {**GREEDY, "request": np.arange(step.seqs), "step": 0, "active": active}
            for name, value in numbers.items():
                self._read(name).copy_(torch.as_tensor(value))

    def _segments(self, inputs: Values, shape: Shape, found: _Comparison) -> None:
        """Run table and model call by call; what each call writes must agree."""
        calls = self._paired_calls(inputs)
        for number, segment in enumerate(self._interpreter.segments(self._memory, shape)):
            if segment.kind not in KINDS.values():
                continue
            given, call, values = _matching(calls, segment)
            found.at = (number, segment.name)
            same = [name for name, ours in zip(call.outs, given, strict=False) if name == ours]
            for name in same:
                if name in self._content.values:
                    found.close(name, self._value(name), values[name])
            found.compared += 1
            found.unmatched += len(call.outs) - len(same)

    def _paired_calls(self, inputs: Values) -> Iterator[Ran]:
        """The model's calls as they run, each with the names that its values have in the build.

        Kernels of custom ops are traced otherwise than the model's: pieces of both then have the
        same place, while some of their values have other names, or no counterpart.
        """
        calls = self._eager.calls(inputs, self._caches)
        for given, (call, values) in zip(self._content.calls, calls, strict=True):
            yield given, call, values

    def _value(self, name: str) -> torch.Tensor:
        """A value of the step program where the table keeps it."""
        place, sizes = self._content.values[name], self._memory.sizes
        start = evaluate(place.offset, sizes)
        region = self._memory.region(place.region)
        item = DTYPES[place.dtype]
        flat = as_torch(region[start : start + (len(region) - start) // item * item], place.dtype)
        shape, stride = evaluate_all(place.shape, sizes), evaluate_all(place.stride, sizes)
        return flat.as_strided(shape, stride)

    def _compare_inputs(self, step: CheckStep, inputs: Values, found: _Comparison) -> None:
        """What the loop's head made of the last step's result."""
        rows = len(step.work)
        found.at = (0, "advance")
        for name in ("slot_mapping", "seq_lens"):
            found.equal(name, self._read(name), inputs[name])
        for name in ("input_ids", "positions"):
            found.equal(name, self._read(name)[:rows], inputs[name][:rows])


def _matching(calls: Iterator[Ran], segment: Segment) -> Ran:
    """Run the model up to the call of a segment; a piece without work has no segment."""
    for given, call, values in calls:
        same_op = call.kind == "piece" or call.target.partition(".")[0] == segment.name
        if KINDS[call.kind] is segment.kind and same_op:
            return given, call, values
    raise VccError(f"the table has a segment {segment.name} that the model has no call for")


class _Comparison:
    """Compares the values of one step; knows the largest error so far."""

    def __init__(self, step: str, graph: str) -> None:
        self._step, self._graph = step, graph
        self.at: tuple[int, str] = (0, "")
        self.compared, self.unmatched, self.worst = 0, 0, 0.0

    def close(self, name: str, got: torch.Tensor, want: torch.Tensor) -> None:
        """Any value: within a share of its largest element. NaN where the model has none differs.

        KV caches have slots that were never written, in both.
        """
        if got.shape != want.shape:
            self._differ(name, inf, 0.0)
        known = ~want.isnan()
        error = torch.where(known, (got - want).abs(), 0.0) if got.is_floating_point() else None
        if error is None:
            self.equal(name, got, want)
            return
        self._judge(name, error, want[known].abs().max() if known.any() else want.new_zeros(()))

    def logits(self, got: torch.Tensor, want: torch.Tensor) -> None:
        """Logits: within a share of the largest at each position, and the same best token."""
        self.at = (-1, "logits")
        for row, (mine, theirs) in enumerate(zip(got, want, strict=True)):
            self._judge(f"logits of row {row}", (mine - theirs).abs(), theirs.abs().max())
        self.equal("best token", got.argmax(-1), want.argmax(-1))

    def equal(self, name: str, got: torch.Tensor, want: torch.Tensor) -> None:
        """Integers: the same."""
        if not torch.equal(got.to(want.dtype), want):
            self._differ(name, float((got.double() - want.double()).abs().max()), 0.0)

    def _judge(self, name: str, error: torch.Tensor, largest: torch.Tensor) -> None:
        worst = float(error.max()) if error.numel() else 0.0
        allowed = SHARE * float(largest)
        if not worst <= allowed:
            self._differ(name, worst, allowed)
        self.worst = max(self.worst, worst / float(largest) if float(largest) else 0.0)

    def _differ(self, name: str, error: float, allowed: float) -> None:
        number, segment = self.at
        error = error if isfinite(error) else -1.0  # JSON has no NaN
        raise Different(Mismatch(self._step, self._graph, number, segment, name, error, allowed))


def check(folder: Path, job: Job) -> Outcome:
    """Run every step of a job.

    Raises:
        OutOfRegion, IntegrityError, CompileError: what the table does and may not.
    """
    limits = Limits(job.max_tokens, job.max_seqs, job.block_size, job.blocks_per_seq)
    eager = eager_step(
        spec_of(job.config).for_length(job.length),
        StepShape(job.max_tokens, job.max_seqs, job.block_size, job.blocks_per_seq),
        job.ops,
        parse_config(job.compilation),
        Target.parse(job.target),
    )
    steps = schedule(limits, job.asked)
    content = read(folder / CONTENT)
    checker = Checker(content, eager, limits, blocks_for(steps, limits), folder)
    results: list[StepResult] = []
    try:
        for step in steps:
            results += checker.step(step)
        last = next(one for one in reversed(steps) if one.decode)
        results += checker.loop(last)
    except Different as difference:
        return Outcome(tuple(results), difference.mismatch)
    return Outcome(tuple(results))


def main(folder: Path) -> None:
    """Check the job of a folder and leave the result, or the error, there."""
    with suppress(DeviceError):  # without the native library the parent's clean-up has to do
        die_with_parent()
    torch.set_num_threads(1)
    begun = time.perf_counter()
    try:
        found: dict[str, Any] = check(folder, Job.read(folder)).as_dict()
        found["seconds"] = time.perf_counter() - begun
    except VccError as error:
        found = {"error": error.as_dict()}
    (folder / RESULT).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
