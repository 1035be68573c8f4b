"""What a captured step gives: what a replay of its table has to give, and its eager step gives too.

A graph holds what the host did while it was captured. A model that does something else each time,
counts its calls or draws on the host, has a graph that is right once, and three captures of it are
the same. So its eager step is run once more on the same batch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vcc.cache.errors import GraphError
from vcc.engine.graphs.recorder.capturing import rehearsed
from vcc.engine.graphs.recorder.parts import Part
from vcc.engine.graphs.recorder.plan import KV_CACHE, Descriptor, Recording
from vcc.engine.graphs.table.types import Role
from vcc.engine.tensor_bytes import tensor_bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """The bytes of the output, and digests of what is compared of the KV cache."""

    output: bytes
    cache: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """Where steps are tried.

    Attributes:
        recording: what was recorded.
        memory: all bytes of each region.
        tensors: what lies in them, by name.
        folder: gets the answers.
    """

    recording: Recording
    memory: Sequence[Tensor]
    tensors: Mapping[str, Tensor]
    folder: Path

    def run(
        self,
        descriptor: Descriptor,
        parts: Sequence[Part[Any]],
        begin: Callable[[], None],
        step: Callable[[], None],
    ) -> None:
        """Replay torch's own graphs of a step and keep what they give.

        Args:
            descriptor: the step.
            parts: its graphs, in order.
            begin: makes the state that a step begins with.
            step: the eager step.

        Raises:
            GraphError: the eager step gives something else.
        """
        begin()
        for part in parts:
            part.held.instantiate()
            part.held.replay()
        graph = self._answer(descriptor)
        begin()
        with torch.cuda.stream(torch.cuda.Stream()):
            rehearsed(step, self.recording.breaks(descriptor))
        check_same(descriptor, graph, self._answer(descriptor))
        (self.folder / f"{descriptor.file}.out").write_bytes(graph.output)
        (self.folder / f"{descriptor.file}.kv").write_text(json.dumps(graph.cache), "utf-8")

    def _answer(self, descriptor: Descriptor) -> Answer:
        torch.cuda.synchronize()
        (slot,) = self.recording.of_role(Role.OUTPUT)
        output = shaped(self.tensors[slot.name], slot.shape_of(descriptor))
        cache = (
            self.memory[KV_CACHE][at : at + size] for at, size in self.recording.compared_cache
        )
        return Answer(
            tensor_bytes(output).tobytes(),
            tuple(hashlib.sha256(tensor_bytes(one).tobytes()).hexdigest() for one in cache),
        )


def check_same(descriptor: Descriptor, graph: Answer, eager: Answer) -> None:
    """Refuse a graph that does not give what the model gives outside of it.

    Raises:
        GraphError: with how much of the output differs, or that the cache does.
    """
    if graph == eager:
        return
    one, other = (np.frombuffer(answer.output, np.uint8) for answer in (graph, eager))
    differing = int((one != other).sum())
    what = f"{differing} of {len(graph.output)} bytes" if differing else "the KV cache"
    raise GraphError(
        "a recorded graph does not give what the model gave",
        f"{descriptor.file}: {what} of torch's own graph differ from those of the eager step",
        "the model's forward must do the same in every run: no random choices, no state",
    )


def shaped(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """The first elements of a dense tensor under another shape."""
    return tensor.flatten()[: prod(shape)].view(tuple(shape))
