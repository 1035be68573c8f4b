"""Models with experts, and with fp8 weights, played on a device: the numbers rule, no torch.

A token goes to the experts that are nearest to it, most tokens to few, and none to one of them
(`support.checkpoints`), so that rounding changes no route.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from support.checkpoints import make_checkpoint, reference_logits
from support.fp8_checkpoints import fp8_logits, make_fp8_checkpoint
from support.numbers import assert_quantised, assert_routed
from support.played import Played, Rule
from torch import Tensor

pytestmark = pytest.mark.gpu


@dataclass(frozen=True)
class Cell:
    """An architecture, the layout of its fp8 weights or none, and the rule for its logits."""

    arch: str
    layout: str
    rule: Rule

    def played(self, folder: Path, target: str) -> Played:
        """Its checkpoint, written now, and transformers' logits for it."""
        if not self.layout:
            plain = make_checkpoint(folder, self.arch, dtype="bfloat16")
            return Played(plain, target, lambda ids, dtype: self._plain(plain, ids, dtype))
        experts = "moe" in self.arch
        made = make_fp8_checkpoint(folder, self.arch, self.layout, experts=experts)
        return Played(made, target, lambda ids, dtype: fp8_logits(made, self.layout, ids, dtype))

    def _plain(self, directory: Path, ids: Sequence[int], dtype: torch.dtype) -> Tensor:
        return reference_logits(directory, ids, str(dtype).removeprefix("torch."))


CELLS = {
    "experts": Cell("qwen3_moe", "", assert_routed),
    "mixtral": Cell("mixtral", "", assert_routed),
    "fp8 experts by block": Cell("qwen3_moe", "block", assert_routed),
    "fp8 by channel": Cell("llama", "channel-token", assert_quantised),
}


@pytest.fixture
def target() -> Callable[[Cell], str]:
    """The device's target; skips fp8 where it has none."""
    major, minor = torch.cuda.get_device_capability()

    def found(cell: Cell) -> str:
        if cell.layout and (major, minor) < (8, 9):
            pytest.skip("this device has no fp8")
        return f"sm_{major}{minor}"

    return found


@pytest.mark.parametrize("cell", CELLS.values(), ids=[*CELLS])
def test_a_played_model_keeps_to_the_rule(
    cell: Cell, target: Callable[[Cell], str], tmp_path: Path
) -> None:
    """Prefill in chunks beside another prompt, then decode: few rows an expert, and many."""
    cell.played(tmp_path / "model", target(cell)).check(tmp_path, cell.rule)
