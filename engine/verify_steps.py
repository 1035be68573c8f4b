"""The child of `vcc verify --interpret`: steps of a node table beside the model, call by call.

Runs as `python -m vcc.engine.verify_steps FOLDER` with Triton's interpreter switched on. FOLDER has
the job and what a build left (`planner.content`), and gets the result.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vcc.cache.errors import DeviceError, VccError
from vcc.engine.config.parse import parse_config
from vcc.engine.config.target import Target
from vcc.engine.config.types import DimRange
from vcc.engine.graphs.check_batches import (
    CheckStep,
    Limits,
    Sequences,
    blocks_for,
    in_ranges,
    schedule,
)
from vcc.engine.graphs.expr import evaluate, evaluate_all
from vcc.engine.graphs.host_memory import PERMANENT, HostMemory
from vcc.engine.graphs.interpret import Interpreter, Shape
from vcc.engine.graphs.interpreted_products import as_torch
from vcc.engine.graphs.planner.content import GpuContent, StepContent, read
from vcc.engine.graphs.program import Call
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.layout import DTYPES
from vcc.engine.graphs.table.types import RegionKind, Role, Segment, SegmentKind, TableTensor
from vcc.engine.models.architectures import spec_of
from vcc.engine.native import die_with_parent
from vcc.engine.runtime.by_size import chosen
from vcc.engine.trace.decoder import StepShape
from vcc.engine.verify_compare import Comparison, Different
from vcc.engine.verify_eager import EagerStep, Values, eager_steps
from vcc.engine.verify_job import CONTENT, RESULT, Job, Outcome, StepResult

KINDS: Mapping[str, SegmentKind] = {"piece": SegmentKind.PIECE, "op": SegmentKind.OP}

GREEDY: Mapping[str, float] = {"temperature": 0, "top_p": 1, "top_k": 0, "seed": 0}


Ran = tuple[tuple[str, ...], Call, dict[str, torch.Tensor]]
"""Values that a call of the table gives, the model's call, and the model's values after it."""


class _Part:
    """The table of one range of tokens, with the model's step of that range."""

    def __init__(self, step: StepContent, eager: EagerStep, content: GpuContent, folder: Path):
        self.step, self.eager, self.table = step, eager, decode(step.table)
        self.tensors = {tensor.name: tensor for tensor in self.table.tensors}
        self.interpreter = Interpreter(self.table, content.sources, folder)
        (tokens,) = (one for one in self.table.symbols if one.name == "T")
        self.low, self.high = tokens.low, tokens.high


class Checker:
    """The tables of a step and the model beside each other, over the same sequences and memory.

    Args:
        content: the build's result, in fp32.
        eagers: the model, for each of its tables.
        limits: of a step.
        blocks: KV blocks.
        folder: for rewritten kernels.
    """

    def __init__(
        self,
        content: GpuContent,
        eagers: Sequence[EagerStep],
        limits: Limits,
        blocks: int,
        folder: Path,
    ) -> None:
        pairs = zip(content.steps, eagers, strict=True)
        self._parts = [_Part(step, eager, content, folder) for step, eager in pairs]
        self._part = self._parts[0]
        self._sequences = Sequences(limits, blocks, eagers[0].spec.vocab)
        largest = {"T": limits.max_tokens, "B": limits.max_seqs, "K": blocks}
        self._memory = HostMemory(self._part.table, largest)
        shape = eagers[0].spec.kv_shape(blocks, limits.block_size)
        # NaN, so that a read of anything that was never written shows.
        self._caches = [torch.full(shape, float("nan")) for _ in range(eagers[0].spec.layers)]
        self._bind(content.constants)

    def step(self, step: CheckStep) -> Iterator[StepResult]:
        """Run a step by every kind of graph that may run it.

        Raises:
            Different: the first value that is not the model's.
        """
        inputs = self._sequences.inputs(step, ahead=1)
        for uniform in (True, False) if step.decode else (False,):
            for adapted, given in _with_and_without(inputs):
                yield self._run(step, given, Shape(uniform=uniform, adapted=adapted))

    def loop(self, step: CheckStep) -> Iterator[StepResult]:
        """A decode step with sampling, then one more that the device makes of its result."""
        inputs = self._sequences.inputs(step, ahead=2)
        adapted = "lora_slot" in inputs
        yield self._run(step, inputs, Shape(uniform=True, sample=True, adapted=adapted))
        token = self._read("token").tolist()
        given = {sequence: [token[i]] for i, sequence in enumerate(step.work)}
        wanted = self._sequences.inputs(step, given, ahead=1)
        shape = Shape(uniform=True, advance=True, sample=True, adapted=adapted)
        yield self._run(step, wanted, shape)

    def _bind(self, constants: Mapping[str, bytes]) -> None:
        for tensor in self._part.table.tensors:
            if tensor.role is Role.WEIGHT:
                self._read(tensor.name).copy_(self._part.eager.weights[tensor.target])
            elif tensor.role is Role.CONSTANT:
                data = np.frombuffer(constants[tensor.target], np.uint8)
                self._memory.tensor(tensor)[:] = data

    def _read(self, name: str) -> torch.Tensor:
        tensor: TableTensor = self._part.tensors[name]
        flat = as_torch(self._memory.tensor(tensor), tensor.dtype)
        return flat.view(evaluate_all(tensor.shape, self._memory.sizes))

    def _run(self, step: CheckStep, inputs: Mapping[str, Any], shape: Shape) -> StepResult:
        self._part = chosen(self._parts, step.tokens)
        sizes = {"T": step.tokens, "B": step.seqs, "K": len(self._caches[0][0])}
        keep = (*PERMANENT, RegionKind.IO) if shape.advance else PERMANENT
        self._memory.begin(sizes, keep)
        if not shape.advance:
            self._write(step, inputs, shape)
        given = {name: torch.from_numpy(array) for name, array in inputs.items()}
        graph = "loop" if shape.sample else "decode" if shape.uniform else "mixed"
        found = Comparison(step.name, graph)
        self._segments(given, shape, found)
        if shape.advance:
            self._compare_inputs(step, given, found)
        logits = self._part.eager.logits(given, self._caches)
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

    def _segments(self, inputs: Values, shape: Shape, found: Comparison) -> None:
        """Run table and model call by call; what each call writes must agree."""
        calls = self._paired_calls(inputs)
        for number, segment in enumerate(self._part.interpreter.segments(self._memory, shape)):
            if segment.kind not in KINDS.values():
                continue
            given, call, values = _matching(calls, segment)
            found.at = (number, segment.name)
            same = [name for name, ours in zip(call.outs, given, strict=False) if name == ours]
            for name in same:
                if name in self._part.step.values:
                    found.close(name, self._value(name), values[name])
            found.compared += 1
            found.unmatched += len(call.outs) - len(same)

    def _paired_calls(self, inputs: Values) -> Iterator[Ran]:
        """The model's calls as they run, each with the names that its values have in the build.

        Kernels of custom ops are traced otherwise than the model's: pieces of both then have the
        same place, while some of their values have other names, or no counterpart.
        """
        calls = self._part.eager.calls(inputs, self._caches)
        for given, (call, values) in zip(self._part.step.calls, calls, strict=True):
            yield given, call, values

    def _value(self, name: str) -> torch.Tensor:
        """A value of the step program where the table keeps it."""
        place, sizes = self._part.step.values[name], self._memory.sizes
        start = evaluate(place.offset, sizes)
        region = self._memory.region(place.region)
        item = DTYPES[place.dtype]
        flat = as_torch(region[start : start + (len(region) - start) // item * item], place.dtype)
        shape, stride = evaluate_all(place.shape, sizes), evaluate_all(place.stride, sizes)
        return flat.as_strided(shape, stride)

    def _compare_inputs(self, step: CheckStep, inputs: Values, found: Comparison) -> None:
        """What the loop's head made of the last step's result."""
        rows = len(step.work)
        found.at = (0, "advance")
        for name in ("slot_mapping", "seq_lens"):
            found.equal(name, self._read(name), inputs[name])
        for name in ("input_ids", "positions"):
            found.equal(name, self._read(name)[:rows], inputs[name][:rows])


def _with_and_without(inputs: Mapping[str, Any]) -> Iterator[tuple[bool, Mapping[str, Any]]]:
    """The step as it is; with adapters also one that has none, which leaves their nodes out."""
    slots = inputs.get("lora_slot")
    yield slots is not None, inputs
    if slots is not None:
        yield False, {**inputs, "lora_slot": np.full_like(slots, -1)}


def _matching(calls: Iterator[Ran], segment: Segment) -> Ran:
    """Run the model up to the call of a segment; a piece without work has no segment."""
    for given, call, values in calls:
        same_op = call.kind == "piece" or call.target.partition(".")[0] == segment.name
        if KINDS[call.kind] is segment.kind and same_op:
            return given, call, values
    raise VccError(f"the table has a segment {segment.name} that the model has no call for")


def check(folder: Path, job: Job) -> Outcome:
    """Run every step of a job.

    Raises:
        OutOfRegion, IntegrityError, CompileError: what the table does and may not.
    """
    limits = Limits(job.max_tokens, job.max_seqs, job.block_size, job.blocks_per_seq, job.loras)
    content = read(folder / CONTENT)
    ranges = [_range(step.sizes, job.max_tokens) for step in content.steps]
    eagers = eager_steps(
        spec_of(job.config).for_length(job.length),
        StepShape(job.max_tokens, job.max_seqs, job.block_size, job.blocks_per_seq),
        job.ops,
        parse_config(job.compilation),
        Target.parse(job.target),
        ranges,
        job.lora,
    )
    usual = schedule(limits, job.asked)
    steps = in_ranges(usual, [(one.min, one.max) for one in ranges], limits)
    checker = Checker(content, eagers, limits, blocks_for(steps, limits), folder)
    results: list[StepResult] = []
    try:
        for step in steps:
            results += checker.step(step)
        last = next(one for one in reversed(usual) if one.decode)
        results += checker.loop(last)
    except Different as difference:
        return Outcome(tuple(results), difference.mismatch)
    return Outcome(tuple(results))


def _range(sizes: str, most: int) -> DimRange:
    """The tokens of a table's steps, as its name in the build's result says."""
    low, _, high = (sizes or f"1-{most}").partition("-")
    return DimRange(int(low), int(high))


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
