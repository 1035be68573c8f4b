"""libcuda through ctypes: the calls a torch-free player needs, each checked."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt

MAX_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""

RELAXED = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED."""


class DriverError(RuntimeError):
    """A driver call that failed, with its name and the driver's word for it."""


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2 of cuda.h."""

    _fields_ = [
        ("func", c_void_p),
        *((f"{kind}_{axis}", c_uint) for kind in ("grid", "block") for axis in "xyz"),
        ("shared", c_uint),
        ("parameters", POINTER(c_void_p)),
        ("extra", POINTER(c_void_p)),
        ("kern", c_void_p),
        ("ctx", c_void_p),
    ]


class Words:
    """The parameter array of one launch; keeps what it points to alive."""

    def __init__(self, kinds: Sequence[str], values: Sequence[int]) -> None:
        types = {"i32": ctypes.c_int32, "i64": ctypes.c_int64}
        self._cells = [
            c_uint64(value) if kind.startswith("*") else types[kind](value)
            for kind, value in zip(kinds, values, strict=True)
        ]
        self.array = (c_void_p * len(self._cells))(*(ctypes.addressof(c) for c in self._cells))


class Driver:
    """A device's primary context, and the calls on it.

    Raises:
        DriverError: no driver, no device, or a call that fails.
    """

    def __init__(self, ordinal: int = 0) -> None:
        try:
            self._lib = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DriverError(f"no CUDA driver: {error}") from None
        self._call("cuInit", 0)
        device = c_int()
        self._call("cuDeviceGet", byref(device), ordinal)
        self.device = device.value

    def open(self) -> None:
        """Make the primary context current, with one stream."""
        context = c_void_p()
        self._call("cuDevicePrimaryCtxRetain", byref(context), self.device)
        self._call("cuCtxSetCurrent", context)
        self.stream = c_void_p()
        self._call("cuStreamCreate", byref(self.stream), 1)

    def describe(self) -> dict[str, Any]:
        """Name, compute capability and driver version."""
        name, version, part = ctypes.create_string_buffer(128), c_int(), c_int()
        self._call("cuDeviceGetName", name, 128, self.device)
        self._call("cuDriverGetVersion", byref(version))
        capability = []
        for attribute in (75, 76):
            self._call("cuDeviceGetAttribute", byref(part), attribute, self.device)
            capability.append(part.value)
        return {"name": name.value.decode(), "sm": capability, "driver_api": version.value}

    def allocate(self, size: int) -> int:
        """Device memory; the address."""
        address = c_uint64()
        self._call("cuMemAlloc_v2", byref(address), c_size_t(max(size, 1)))
        return address.value

    def fill(self, address: int, byte: int, size: int) -> None:
        """Set every byte of a range."""
        value = ctypes.c_ubyte(byte)
        self._call("cuMemsetD8Async", c_uint64(address), value, c_size_t(size), self.stream)

    def write(self, address: int, data: npt.NDArray[Any]) -> None:
        """Copy an array to the device, in the stream's order; it may be freed on return."""
        flat = np.ascontiguousarray(data)
        source, size = c_void_p(flat.ctypes.data), c_size_t(flat.nbytes)
        self._call("cuMemcpyHtoDAsync_v2", c_uint64(address), source, size, self.stream)

    def read(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        """Copy bytes from the device, after everything on the stream."""
        self.wait()
        data = np.empty(size, np.uint8)
        self._call("cuMemcpyDtoH_v2", c_void_p(data.ctypes.data), c_uint64(address), c_size_t(size))
        return data

    def function(self, cubin: bytes, name: str, shared: int) -> c_void_p:
        """Load a cubin and take one function of it."""
        module, function = c_void_p(), c_void_p()
        self._call("cuModuleLoadData", byref(module), c_char_p(cubin))
        self._call("cuModuleGetFunction", byref(function), module, name.encode())
        if shared > 48 << 10:
            self._call("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, shared)
        return function

    def parameter_bytes(self, function: c_void_p) -> int:
        """End of the function's last parameter, as the driver sees it."""
        at, width, end, index = c_size_t(), c_size_t(), 0, 0
        while not self._lib.cuFuncGetParamInfo(function, c_size_t(index), byref(at), byref(width)):
            end, index = at.value + width.value, index + 1
        return end

    def launch(self, node: KernelNode) -> None:
        """Launch a kernel on the stream."""
        shape = [getattr(node, f"{kind}_{axis}") for kind in ("grid", "block") for axis in "xyz"]
        self._call(
            "cuLaunchKernel",
            c_void_p(node.func),
            *map(c_uint, (*shape, node.shared)),
            self.stream,
            node.parameters,
            None,
        )

    def wait(self) -> None:
        """Until the stream is empty; raises what a kernel on it did wrong."""
        self._call("cuStreamSynchronize", self.stream)

    def captured(self, nodes: Sequence[KernelNode]) -> c_void_p:
        """A graph of these launches, by stream capture."""
        graph = c_void_p()
        self._call("cuStreamBeginCapture_v2", self.stream, RELAXED)
        for node in nodes:
            self.launch(node)
        self._call("cuStreamEndCapture", self.stream, byref(graph))
        return graph

    def built(self, nodes: Sequence[KernelNode]) -> c_void_p:
        """The same graph built node by node, one after another."""
        graph, last = c_void_p(), c_void_p()
        self._call("cuGraphCreate", byref(graph), 0)
        for index, node in enumerate(nodes):
            new = c_void_p()
            before = byref(last) if index else None
            count = c_size_t(1 if index else 0)
            self._call("cuGraphAddKernelNode_v2", byref(new), graph, before, count, byref(node))
            last = new
        return graph

    def instantiate(self, graph: c_void_p) -> c_void_p:
        """An executable of a graph."""
        executable = c_void_p()
        self._call("cuGraphInstantiateWithFlags", byref(executable), graph, c_uint64(0))
        return executable

    def replay(self, executable: c_void_p) -> None:
        """Launch an executable graph on the stream."""
        self._call("cuGraphLaunch", executable, self.stream)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._lib, name)(*arguments)
        if code:
            text = c_char_p()
            self._lib.cuGetErrorName(code, byref(text))
            raise DriverError(f"{name}: {(text.value or b'?').decode()} ({code})")
