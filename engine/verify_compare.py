"""Values of a node table beside the model's: the first that differs ends a check."""

from __future__ import annotations

from math import inf, isfinite

import torch

from vcc.engine.verify_job import Mismatch

SHARE = 1e-4
"""The numbers rule for fp32: largest error as a share of the largest reference value."""


class Different(Exception):
    """Ends a check with what differs."""

    def __init__(self, mismatch: Mismatch) -> None:
        super().__init__(mismatch.name)
        self.mismatch = mismatch


class Comparison:
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
