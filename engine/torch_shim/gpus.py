"""Code for the CPU compiled on a machine that has a GPU: a worker must leave the GPU alone."""

from __future__ import annotations

from typing import Any

import torch

QUESTIONS: tuple[tuple[str, Any], ...] = (("is_available", False), ("device_count", 0))
"""What torch asks before it touches a GPU, with the answer where there is none."""


def hide_gpus() -> None:
    """Make torch believe, from now on, that this process has no GPU; for a forked worker.

    Compiling saves the state of a GPU's random numbers wherever one is present, which starts CUDA,
    and a fork of a process that has asked for devices cannot do that. The answers stay: caches all
    over torch remember them, so a process that lives on is not the place for this.
    """
    for module in (torch.cuda, torch.xpu):
        for name, answer in QUESTIONS:
            setattr(module, name, _always(answer))


def _always(answer: Any) -> Any:
    return lambda *_, **__: answer
