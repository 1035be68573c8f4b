"""Make `torch.ops.vcc.*` callable: schemas, fakes, and the best CPU back end this install has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, cast

import torch

from vcc.cache.errors import IntegrityError
from vcc.engine import native
from vcc.engine.config.environment import read_environment
from vcc.engine.ops import native_attention, native_fused, native_torch, schemas
from vcc.engine.ops.cuda import eager


@dataclass(frozen=True, slots=True)
class OpsBackend:
    """Which implementation answers `torch.ops.vcc.*` on the CPU.

    Args:
        name: `cpu` for the compiled kernels, `native` for plain torch.
        reason: why this one; a sentence for the user.
    """

    name: Literal["native", "cpu"]
    reason: str


def load_ops() -> OpsBackend:
    """Define and load the operators, once a process; later calls return the same answer."""
    return _load().backend


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A torch Library unregisters its operators when it is collected, so it is kept here."""

    backend: OpsBackend
    library: torch.library.Library


@cache
def _load() -> _Loaded:
    library = torch.library.Library(schemas.NAMESPACE, "DEF")
    schemas.define(library)
    eager.define(library)
    native_attention.define(library)
    backend = _load_compiled()
    if backend.name == "cpu" and torch.version.cuda is not None:
        eager.hand_over(read_environment().libcuda)
    for name, function in (*native_torch.IMPLEMENTATIONS, *native_fused.IMPLEMENTATIONS):
        if not _has_cpu_kernel(name):
            library.impl(name, function, "CPU")
    return _Loaded(backend, library)


def _has_cpu_kernel(name: str) -> bool:
    """Whether the compiled library brought one: it has none for operators that gain nothing."""
    return bool(getattr(torch.ops.vcc, name).default.has_kernel_for_dispatch_key("CPU"))


def _load_compiled() -> OpsBackend:
    """Load `libvcc_ops.so`; an absent or unloadable library is a reason, not an error."""
    path = native.library("vcc_ops")
    if path is None:
        return OpsBackend(
            "native", "libvcc_ops.so was not built: no C++ compiler, or no torch, at install"
        )
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        return OpsBackend("native", f"libvcc_ops.so does not load here: {error}")
    return OpsBackend("cpu", f"compiled kernels of {path.name}")


def operator(name: str) -> Callable[..., Any]:
    """The callable of `ns::op.overload`, as step programs name it.

    Raises:
        IntegrityError: no such operator is registered.
    """
    namespace, _, rest = name.partition("::")
    op, _, overload = rest.partition(".")
    try:
        packet = getattr(getattr(torch.ops, namespace), op)
        return cast("Callable[..., Any]", getattr(packet, overload or "default"))
    except AttributeError as error:
        raise IntegrityError(
            f"operator {name} is not registered",
            "the artifact was built with a library that is not loaded here",
            "import the package that defines it first",
        ) from error
