"""Plays a schedule on a model's node table by Triton's interpreter: its own weights, fp8 included.

    TRITON_INTERPRET=1 python -m support.interpreted_play FOLDER

FOLDER is what `leave` left. The table is built in fp32 for the real device, so that keys are split
as they are there; memory that was never written is NaN in every type, the KV cache too. Writes the
logits of each prompt at the ends of its steps to FOLDER/logits.safetensors.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from support.flow import Forcer, ask, force
from support.fused_cases import FP8, convert_as_torch_does
from support.interpreted import run_interpreted
from vcc.engine.compile.gpu import device_profile
from vcc.engine.events import NullEvents
from vcc.engine.graphs.host_memory import HostMemory
from vcc.engine.graphs.planner.content import read, write
from vcc.engine.graphs.planner.process import plan_in_child
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.types import Role
from vcc.engine.models.bindings import bindings_of
from vcc.engine.models.weights import load_weights
from vcc.engine.request import settle
from vcc.engine.runtime.batch import StepBatch, StepLimits

SIZES: Mapping[str, int] = {"max_model_len": 128, "max_num_seqs": 3, "max_num_batched_tokens": 48}
BLOCK, BLOCKS = 16, 12


def played(
    folder: Path,
    model: Path,
    prompts: Sequence[Sequence[int]],
    schedule: Sequence[Mapping[int, int]],
    **options: object,
) -> dict[int, Tensor]:
    """Logits of each prompt, one row for each of its steps.

    Args:
        folder: empty.
        model: checkpoint.
        prompts: token ids.
        schedule: steps as {prompt: tokens}; what it leaves over is decoded.
        options: fields of ModelOptions.
    """
    asked = settle(ask(model, target="sm_90", mode="full", dtype="fp32", **SIZES, **options))
    (folder / "content").mkdir()
    write(plan_in_child(asked, device_profile(asked), NullEvents()), folder / "content")
    job = {"model": str(model), "prompts": prompts, "schedule": [[*s.items()] for s in schedule]}
    (folder / "job.json").write_text(json.dumps(job))
    run_interpreted("interpreted_play", str(folder))
    return {int(name): rows for name, rows in load_file(folder / "logits.safetensors").items()}


@dataclass(frozen=True)
class Interpreted:
    """A table with weights and memory as a runner of steps."""

    table: Any
    interpreter: Any
    memory: HostMemory
    limits: StepLimits

    def tensor(self, name: str) -> Tensor:
        """A tensor of the table at the sizes of the step."""
        from vcc.engine.graphs.expr import evaluate_all
        from vcc.engine.graphs.interpreted_products import as_torch

        (one,) = (tensor for tensor in self.table.tensors if tensor.name == name)
        flat = as_torch(self.memory.tensor(one), one.dtype)
        return flat.view(evaluate_all(one.shape, self.memory.sizes))

    def step(self, batch: StepBatch) -> Tensor:
        """Logits [B, vocab]."""
        from vcc.engine.graphs.interpret import Shape

        sizes = {"T": len(batch.input_ids), "B": len(batch.seq_lens), "K": BLOCKS}
        self.memory.begin(sizes)
        for tensor in self.table.tensors:
            if tensor.role is Role.INPUT and hasattr(batch, tensor.name):
                self.tensor(tensor.name).copy_(torch.from_numpy(getattr(batch, tensor.name)))
        for _ in self.interpreter.segments(self.memory, Shape(uniform=batch.uniform)):
            pass
        return self.tensor("logits").clone()


def runner_of(folder: Path, model: str) -> Interpreted:
    """The runner of what a build left."""
    from vcc.engine.graphs import interpret

    interpret.ELEMENTS = {**interpret.ELEMENTS, "fp8e4nv": FP8}  # type: ignore[misc]
    content = read(folder / "content")
    table = decode(content.steps[0].table)
    (folder / "kernels").mkdir()
    tokens, seqs, length = (
        SIZES[name] for name in ("max_num_batched_tokens", "max_num_seqs", "max_model_len")
    )
    made = Interpreted(
        table,
        interpret.Interpreter(table, content.sources, folder / "kernels"),
        HostMemory(table, {"T": tokens, "B": seqs, "K": BLOCKS}),
        StepLimits(tokens, seqs, BLOCK, BLOCKS, length // BLOCK, length, 0),
    )
    source = settle(ask(model, target="sm_90", dtype="fp32", **SIZES)).request.source
    held = [one for one in table.tensors if one.role is Role.WEIGHT]
    exact = {one.target: getattr(torch, one.dtype) for one in held}
    bindings = bindings_of(source.spec, source.tensors)
    weights, _ = load_weights(bindings, source.tensors, torch.float32, exact)
    for one in held:
        place = made.tensor(one.name)
        place.copy_(weights[one.target].view(place.shape))
    for one in table.tensors:
        if one.role is Role.CONSTANT:
            data = content.constants[one.target]
            made.memory.tensor(one)[:] = np.frombuffer(data, np.uint8)
    return made


def main(folder: Path) -> None:
    """Play the job of a folder."""
    torch.set_num_threads(1)
    convert_as_torch_does()
    job = json.loads((folder / "job.json").read_text())
    forcer = Forcer(runner_of(folder, job["model"]), every_row=False)
    prompts = dict(enumerate(job["prompts"]))
    found = force(forcer, prompts, [dict(map(tuple, step)) for step in job["schedule"]])
    save_file(
        {str(n): rows.contiguous() for n, rows in found.items()}, folder / "logits.safetensors"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
