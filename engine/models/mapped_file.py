"""Files of a checkpoint, mapped into memory, and tensors that are views of them."""

from __future__ import annotations

import math
import mmap
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from vcc.cache.errors import ModelError
from vcc.cache.named_files import open_named
from vcc.engine.models.tensor_info import TensorInfo

_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
"""Named from Python 3.11 on. Without it a file larger than memory may not be mapped."""


@dataclass(slots=True)
class MappedFiles:
    """Mappings by path; each is made once and lives as long as a view of it does."""

    bases: dict[Path, Tensor] = field(default_factory=dict)

    def view(self, info: TensorInfo) -> Tensor:
        """The tensor's bytes in place, as its dtype and shape; nothing is read yet.

        The mapping is private: a write to the view changes this process's copy of the page only.

        Raises:
            ModelError: the file cannot be read, or is shorter than its header said.
        """
        file = info.stored()
        dtype: torch.dtype = getattr(torch, info.dtype)
        base = self._base(file)
        if info.end > base.numel():
            raise ModelError(
                f"{file} is shorter than its header says",
                f"it has {base.numel()} bytes, a tensor ends at {info.end}",
                "download the file again",
            )
        if not math.prod(info.shape):
            return torch.empty(info.shape, dtype=dtype)
        raw = base[info.start : info.end]
        if info.start % dtype.itemsize:
            return raw.clone().view(dtype).view(info.shape)
        return raw.view(dtype).view(info.shape)

    def aliases(self, tensor: Tensor, info: TensorInfo) -> bool:
        """Whether the tensor lies in the mapping of its file, at its place."""
        base = self._base(info.stored())
        return tensor.data_ptr() == base.data_ptr() + info.start

    def _base(self, file: Path) -> Tensor:
        if file not in self.bases:
            self.bases[file] = _map(file)
        return self.bases[file]


def _map(file: Path) -> Tensor:
    """The whole file as uint8."""
    try:
        stream = open_named(file, pipes=False)
    except OSError as error:
        raise ModelError(f"cannot read {file}", str(error.strerror)) from error
    with stream:
        handle, protection = stream.fileno(), mmap.PROT_READ | mmap.PROT_WRITE
        try:
            size = os.fstat(handle).st_size
            mapping = mmap.mmap(handle, size, mmap.MAP_PRIVATE | _NORESERVE, protection)
        except (OSError, ValueError) as error:
            raise ModelError(f"cannot map {file}", str(error)) from error
    return torch.frombuffer(mapping, dtype=torch.uint8)
