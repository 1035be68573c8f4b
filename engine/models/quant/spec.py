"""QuantSpec: how a checkpoint's projections are quantised, as one frozen value. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vcc.cache.errors import ModelError
from vcc.engine.models.quant.patterns import any_matches

BLOCK = 128
"""Rows and columns of a weight block, and values of an activation block."""

STATIC_ROWS = 8192
"""How often the scale of static activations stands where the weight has one for each row: products
of up to so many rows can then take one for each row of both."""

FP8 = "float8_e4m3fn"
"""The one element type of quantised weights."""

LINEAR = "Linear"
"""The target that names every projection."""


@dataclass(frozen=True, slots=True)
class QuantSpec:
    """Equal specs compile to equal code.

    Attributes:
        method: `compressed-tensors` or `fp8`, as `quantization_config` names it.
        weights: what shares a scale: `tensor`, `channel` (a row of the matrix) or `block`.
        activations: `static` (one scale in the checkpoint), `token` or `block` (made by the step).
        targets: modules that are quantised: `Linear`, full names, or `re:` and a pattern.
        ignore: modules of them that are not, in the same words; `under:` and a name means that
            module and all below it.
        scale: last part of the name of a weight's scale.
    """

    method: str
    weights: str
    activations: str
    targets: tuple[str, ...] = (LINEAR,)
    ignore: tuple[str, ...] = ()
    scale: str = "weight_scale"

    def covers(self, modules: Sequence[str], what: str = "one projection") -> bool:
        """Whether modules that are one projection here are quantised.

        Args:
            modules: full names, as `model.layers.0.self_attn.q_proj`.
            what: they are here.

        Raises:
            ModelError: some are and some are not.
        """
        found = [self._covers(module) for module in modules]
        if any(found) and not all(found):
            plain = modules[found.index(False)]
            raise ModelError(
                f"{plain} is not quantised, {modules[found.index(True)]} is",
                f"they are {what} here, with one element type",
                "use a checkpoint whose ignore list has both or neither",
            )
        return found[0]

    def _covers(self, module: str) -> bool:
        wanted = LINEAR in self.targets or any_matches(self.targets, module)
        return wanted and not any_matches(self.ignore, module)

    def __str__(self) -> str:
        """A line for people: `fp8 (compressed-tensors), weights by channel, …`."""
        moving = {"static": "static", "token": "by token", "block": f"by block of {BLOCK}"}
        return (
            f"fp8 ({self.method}), weights by {self.weights}, activations "
            f"{moving[self.activations]}"
        )
