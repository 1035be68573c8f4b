"""The only ctypes door: where the native libraries of this install are, and the plain C ABI."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import vcc
from vcc.cache.errors import DeviceError

ABI_VERSION = 1
"""What `vcc_abi_version()` must answer; changes whenever a C signature changes."""


def library(name: str) -> Path | None:
    """Find a native library that the install built.

    Args:
        name: the library without prefix and suffix, for example `vcc_ops`.

    Returns:
        Its path, or None where the install had no compiler (or no torch headers) to build it.
    """
    candidates = (Path(folder) / "_lib" / f"lib{name}.so" for folder in vcc.__path__)
    return next((path for path in candidates if path.is_file()), None)


@cache
def abi() -> ctypes.CDLL:
    """The loaded `libvcc_abi.so`, with the types of its functions declared.

    Raises:
        DeviceError: the library was not built, does not load, or has another ABI version.
    """
    path = library("vcc_abi")
    if path is None:
        raise DeviceError(
            "cannot use the native library libvcc_abi.so",
            "it was not built when vcc was installed",
            "install a C++ compiler and reinstall vcc",
        )
    return _checked(_open(path), path)


def cpu_level() -> int:
    """The x86-64 micro-architecture level of this CPU (2, 3, 4), or 0 where that has no meaning.

    Raises:
        DeviceError: as `abi`.
    """
    return int(abi().vcc_cpu_level())


def die_with_parent() -> None:
    """End this process, and the compiler that it started, when its parent ends.

    For a process that leads its own group: the whole group is ended. A parent that ended before
    the call is not noticed.

    Raises:
        DeviceError: as `abi`, or the kernel refused.
    """
    if abi().vcc_die_with_parent() != 0:
        raise DeviceError("cannot tie this process to its parent", "prctl refused")


def _open(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise DeviceError(
            f"cannot load {path}", str(error), "reinstall vcc on this machine"
        ) from error


def _checked(handle: ctypes.CDLL, path: Path) -> ctypes.CDLL:
    for name, result in (
        ("vcc_abi_version", ctypes.c_uint32),
        ("vcc_cpu_level", ctypes.c_int),
        ("vcc_die_with_parent", ctypes.c_int),
    ):
        function = getattr(handle, name)
        function.argtypes, function.restype = (), result
    found = handle.vcc_abi_version()
    if found != ABI_VERSION:
        raise DeviceError(
            f"cannot use {path}",
            f"its ABI version is {found}, this vcc needs {ABI_VERSION}",
            "reinstall vcc so that both parts come from one build",
        )
    return handle
