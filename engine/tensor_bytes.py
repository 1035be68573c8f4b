"""The elements of a torch tensor as bytes: one way for digests, files and uploads."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch


def tensor_bytes(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    """The elements of a strided tensor of any device, dtype and shape, row-major and flat.

    Returns:
        uint8 `[bytes]`; shares the memory of a tensor that is dense and on the CPU.
    """
    dense = tensor.detach().cpu().contiguous()
    found: npt.NDArray[np.uint8] = dense.reshape(-1).view(torch.uint8).numpy()
    return found
