"""IoBuffer: a tensor on the device for other programs: DLPack and the CUDA array interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vcc.cache.errors import UsageError
from vcc.engine.graphs.table.layout import DTYPES
from vcc.engine.native import CUDA, dlpack_capsule
from vcc.engine.runtime.player.layout import Tensor

_KINDS: Mapping[str, tuple[int, str]] = {
    "float64": (2, "<f8"),
    "float32": (2, "<f4"),
    "float16": (2, "<f2"),
    "bfloat16": (4, "<V2"),
    "int64": (0, "<i8"),
    "int32": (0, "<i4"),
    "int16": (0, "<i2"),
    "int8": (0, "|i1"),
    "uint8": (1, "|u1"),
    "bool": (6, "|b1"),
}
"""DLPack's type code and numpy's type string."""


@dataclass(frozen=True, slots=True)
class IoBuffer:
    """An input, output or state of the step at its largest size; dense, no copy.

    A step of fewer rows uses the first ones. Whoever writes or reads it orders that with the
    steps himself: `step` returns when the device is done.

    Attributes:
        owner: keeps the memory alive.
        tensor: what it is.
        device: number of the CUDA device.
    """

    owner: Any = field(repr=False)
    tensor: Tensor
    device: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Largest sizes."""
        return self.tensor.shape

    @property
    def dtype(self) -> str:
        """torch's name of it."""
        return self.tensor.dtype

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        _, text = self._kind()
        return {
            "shape": self.tensor.shape,
            "typestr": text,
            "data": (self.tensor.address, False),
            "strides": None,
            "version": 3,
        }

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule for `torch.from_dlpack` and its like; nothing is queued, so no stream waits.

        Raises:
            BufferError: a copy is asked for, or memory of another device.
            UsageError: the protocol has no name for the dtype.
        """
        del stream, max_version  # an unversioned capsule answers every version
        if copy or dl_device not in (None, self.__dlpack_device__()):
            wanted = "a copy" if copy else f"memory of device {dl_device}"
            here = f"cuda:{self.device}"
            raise BufferError(f"{self.tensor.name} lies on {here} and is lent there, not {wanted}")
        code, _text = self._kind()
        kind = (code, 8 * DTYPES[self.tensor.dtype])
        return dlpack_capsule(self, self.tensor.address, self.tensor.shape, kind, self.device)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.device

    def _kind(self) -> tuple[int, str]:
        if self.tensor.dtype not in _KINDS:
            raise UsageError(
                f"{self.tensor.name} cannot be given to other programs",
                f"they have no name for {self.tensor.dtype}",
            )
        return _KINDS[self.tensor.dtype]
