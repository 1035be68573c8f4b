"""Which implementation each operator layer uses: a value that is passed, never a global."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

FORWARDS: Mapping[str, str] = {
    "cpu": "forward_cpu",
    "cuda": "forward_cuda",
    "triton": "forward_triton",
    "hip": "forward_hip",
    "rocm": "forward_hip",
    "xpu": "forward_xpu",
}
"""Platform -> method of a CustomOp; any other platform uses forward_native."""

NATIVE = "forward_native"


@dataclass(frozen=True, slots=True)
class OpChoice:
    """What operator layers choose from when they are built.

    Args:
        enabled: operator names (`rms_norm`, ...) whose platform kernel is wanted; all others use
            plain torch, which the compiler fuses.
        platform: key of FORWARDS.
        replacements: (class name, class) pairs: constructing the named layer builds that subclass.
    """

    enabled: frozenset[str] = frozenset()
    platform: str = "cpu"
    replacements: tuple[tuple[str, type], ...] = ()

    def replacing(self, name: str, layer: type) -> OpChoice:
        """The same choice with `layer` built wherever the layer called `name` is constructed."""
        others = tuple(pair for pair in self.replacements if pair[0] != name)
        return replace(self, replacements=(*others, (name, layer)))

    def replacement(self, name: str) -> type | None:
        """The registered replacement of a layer name, or None."""
        return dict(self.replacements).get(name)


@dataclass(frozen=True, slots=True)
class Route:
    """The chosen method of a layer, and why."""

    method: str
    reason: str


def route(op: str, layer: type, choice: OpChoice) -> Route:
    """Choose the forward of `layer` (operator name `op`) under `choice`; pure."""
    if op not in choice.enabled:
        return Route(NATIVE, f"{op} is not among the enabled custom ops")
    method = FORWARDS.get(choice.platform)
    if method is None:
        return Route(NATIVE, f"platform {choice.platform} has no kernels of its own")
    if not hasattr(layer, method):
        return Route(NATIVE, f"{layer.__name__} has no {method}")
    return Route(method, f"{op} is enabled and {layer.__name__} has {method}")
