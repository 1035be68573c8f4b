"""The back ends of custom ops: values, and which of them a platform tries in which order. No torch.

What depends on the operator (element types, strides, architectures, scratch memory, whether a
static graph may hold it) stands in the rows of a back end's surface.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vcc.engine.ops.surfaces import aiter, csrc, triton, xpu
from vcc.engine.ops.surfaces.row import Row


@dataclass(frozen=True, slots=True)
class Package:
    """A package of kernels that is not ours.

    Args:
        distribution: its name on the index.
        modules: what is imported before its symbols are there; the first is its own name.
        minimum: the first version that the rows fit.
    """

    distribution: str
    modules: tuple[str, ...]
    minimum: str


@dataclass(frozen=True, slots=True)
class Backend:
    """One way to run a custom op.

    Args:
        name: as configurations and reports say it.
        method: the method of a layer that runs it.
        surface: what it has, by operator.
        needs: modules that the install must have; no package of kernels, such as `triton`.
        library: the native library that its kernels are in; empty when they are elsewhere.
        cubins: its kernels are cubins of this install, one set an architecture.
        package: whose kernels they are; None when they are ours.
    """

    name: str
    method: str
    surface: Mapping[str, Row] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    library: str = ""
    cubins: bool = False
    package: Package | None = None


NATIVE, OWN = "native", "oot"

BACKENDS: Mapping[str, Backend] = {
    one.name: one
    for one in (
        Backend("cuda", "forward_cuda", csrc.CUDA, cubins=True),
        Backend("triton", "forward_triton", triton.ROWS, needs=("triton",)),
        Backend("cpu", "forward_cpu", csrc.CPU, library="vcc_ops"),
        Backend(
            "hip",
            "forward_hip",
            aiter.ROWS,
            package=Package("amd-aiter", ("aiter",), aiter.MINIMUM),
        ),
        Backend(
            "xpu",
            "forward_xpu",
            xpu.ROWS,
            package=Package("vllm-xpu-kernels", xpu.MODULES, xpu.MINIMUM),
        ),
        Backend(OWN, "forward_oot"),
        Backend(NATIVE, "forward_native"),
    )
}
"""Every back end by name."""

ALIASES: Mapping[str, str] = {"rocm": "hip"}
"""Other names of back ends."""

ORDER: Mapping[str, tuple[str, ...]] = {
    "cuda": ("cuda", "triton", NATIVE),
    "triton": ("triton", NATIVE),
    "rocm": ("hip", "triton", NATIVE),
    "xpu": ("xpu", "triton", NATIVE),
    "cpu": ("cpu", NATIVE),
}
"""Platform -> back ends, the preferred first. `triton` is any GPU that Triton compiles for."""


def order_of(platform: str) -> tuple[str, ...]:
    """The back ends to try on a platform; one that is not ours has its own forward, then native."""
    return ORDER.get(platform, (OWN, NATIVE))


def names_of(platform: str) -> tuple[str, ...]:
    """What a configuration may ask for on a platform, aliases included."""
    known = order_of(platform)
    return (*known, *(alias for alias, name in ALIASES.items() if name in known))
