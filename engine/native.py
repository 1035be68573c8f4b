"""The only ctypes door: where the native libraries of this install are, and the plain C ABI."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import vcc
from vcc.cache.errors import (
    CompileError,
    DeviceError,
    DeviceShortage,
    GraphError,
    IntegrityError,
    StorageError,
    UsageError,
    VccError,
)

ABI_VERSION = 4
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


class Functions:
    """Functions of the C ABI by name, made by `functions`."""

    __slots__ = ("_made", "_table")

    def __init__(self, table: Mapping[str, str]) -> None:
        self._table = dict(table)
        self._made: dict[str, Callable[..., Any]] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        made = self._made.get(name)
        if made is None:
            if name not in self._table:
                raise AttributeError(name)
            made = self._made[name] = _bound(name, self._table[name])
        return made


def functions(table: Mapping[str, str]) -> Functions:
    """Declare functions of the C ABI; the library is loaded at the first call of one of them.

    Args:
        table: name to signature, "arguments -> results" by kind, such as
            `"ptr u64 str -> u64"`. Kinds: `u32 i32 u64 i64 f64`, `ptr` (a handle or address),
            `str` (UTF-8), `bytes` (passed without a copy, read only), `buffer` (an object with the
            buffer protocol, or None; its address is passed and it is kept alive during the call).
            Results are numbers, `ptr`, `str` (copied) and are out-parameters of the C function.

    Returns:
        A namespace of callables. A call takes the arguments in order, runs without the interpreter
        lock, and returns None, the result, or a tuple of results.

    Raises:
        DeviceError: of a call, as `abi`, or the library lacks the function. The errors of a call
            that failed are the `VccError` classes of its code and kind, with what, why and hint.
    """
    return Functions(table)


_NUMBERS: dict[str, Any] = {
    "u32": ctypes.c_uint32,
    "i32": ctypes.c_int32,
    "u64": ctypes.c_uint64,
    "i64": ctypes.c_int64,
    "f64": ctypes.c_double,
    "ptr": ctypes.c_uint64,
}
_TEXTS: dict[str, Any] = {"str": ctypes.c_char_p}
_BYTES: dict[str, Any] = {"bytes": ctypes.c_char_p, "buffer": ctypes.c_void_p}
_KINDS = (UsageError, DeviceError, StorageError, IntegrityError, CompileError, GraphError)
_ERRORS: Mapping[int | str, type[VccError]] = {
    "shortage": DeviceShortage,  # a kind within a code, see csrc/abi/error.h
    **{int(kind.exit): kind for kind in _KINDS},
}


def _bound(name: str, signature: str) -> Callable[..., Any]:
    taken, _, given = (part.split() for part in signature.partition("->"))
    function = getattr(abi(), name, None)
    if function is None:
        raise DeviceError(f"cannot call {name}", "libvcc_abi.so does not have it", "reinstall vcc")
    kinds = [(_NUMBERS | _TEXTS)[kind] for kind in given]
    arguments = [(_NUMBERS | _TEXTS | _BYTES)[kind] for kind in taken]
    function.argtypes = (*arguments, *(ctypes.POINTER(kind) for kind in kinds))
    function.restype = ctypes.c_int32
    convert = [(index, _CONVERT[kind]) for index, kind in enumerate(taken) if kind in _CONVERT]

    def call(*values: Any) -> Any:
        passed = list(values)
        for index, made in convert:
            passed[index] = made(values[index])
        results = [kind() for kind in kinds]
        code = function(*passed, *map(ctypes.byref, results))
        if code:
            raise _error(name, code)
        return _value(results)

    return call


def _value(results: list[Any]) -> Any:
    found = [result.value for result in results]
    plain = [os.fsdecode(value) if isinstance(value, bytes) else value for value in found]
    return tuple(plain) if len(plain) > 1 else plain[0] if plain else None


def _error(name: str, code: int) -> VccError:
    text = abi().vcc_error_text().decode(errors="replace")
    what, why, hint, kind = (*text.split("\x1f"), "", "", "", "")[:4]
    made = _ERRORS.get(kind) or _ERRORS.get(code, VccError)
    return made(what or f"{name} failed", why, hint)


def _address(value: Any) -> Any:
    """Something ctypes passes as the address of a buffer's first byte, and that keeps it alive."""
    if value is None:
        return None
    if memoryview(value).nbytes == 0:
        return None
    try:
        return ctypes.byref(ctypes.c_char.from_buffer(value))
    except TypeError:  # read only
        import numpy

        held = numpy.frombuffer(value, dtype=numpy.uint8)
        return ctypes.c_void_p(held.ctypes.data)


def _int32(value: int) -> int:
    """ctypes would pass the low bits of a larger number: device 2**32 would be device 0."""
    if not -(1 << 31) <= value < 1 << 31:
        raise UsageError(f"{value} is out of range", "it does not fit 32 bits")
    return value


_CONVERT: Mapping[str, Callable[[Any], Any]] = {
    "str": os.fsencode,
    "i32": _int32,
    "buffer": _address,
}


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
        ("vcc_error_text", ctypes.c_char_p),
    ):
        function = getattr(handle, name, None)
        if function is not None:
            function.argtypes, function.restype = (), result
    found = handle.vcc_abi_version()
    if found != ABI_VERSION:
        raise DeviceError(
            f"cannot use {path}",
            f"its ABI version is {found}, this vcc needs {ABI_VERSION}",
            "reinstall vcc so that both parts come from one build",
        )
    return handle


def memory_at(address: int, size: int) -> memoryview:
    """Host memory that the native library owns, as writable bytes; the owner keeps it alive."""
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


class _DlTensor(ctypes.Structure):
    """DLTensor of dlpack.h, with the deleter of DLManagedTensor behind it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


_LENT: dict[int, tuple[Any, ...]] = {}
"""What lies behind each capsule that was given out, by the address of its structure."""


def _give_back(tensor: int) -> None:
    _LENT.pop(tensor, None)


def _drop_unused(capsule: int) -> None:
    """A capsule that nobody took; one that was taken has another name and its taker frees it."""
    api = ctypes.pythonapi
    if api.PyCapsule_IsValid(ctypes.c_void_p(capsule), _DLTENSOR):
        get = api.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)
        _LENT.pop(get(capsule, _DLTENSOR), None)


_returned = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_give_back)
_unused = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_drop_unused)
_DLTENSOR = b"dltensor"
CUDA = 2
"""kDLCUDA."""


def dlpack_capsule(
    owner: Any, address: int, shape: Sequence[int], kind: tuple[int, int], device: int
) -> Any:
    """A DLPack capsule of dense device memory.

    Args:
        owner: kept alive as long as the capsule's taker wants the memory.
        address: of the first element.
        shape: sizes.
        kind: DLDataTypeCode and bits of an element.
        device: number of the CUDA device.
    """
    sizes = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    made = _DlTensor(address, CUDA, device, len(shape), kind[0], kind[1], 1, sizes, None, 0, None)
    made.deleter = ctypes.cast(_returned, ctypes.c_void_p)
    place = ctypes.addressof(made)
    _LENT[place] = (made, sizes, owner)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(place, _DLTENSOR, ctypes.cast(_unused, ctypes.c_void_p))
