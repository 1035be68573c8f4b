"""Tensors of a model that are computed from its config instead of read from its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from vcc.engine.models.architectures import DecoderSpec
from vcc.engine.models.rope_frequencies import inverse_frequencies


def constants_of(spec: DecoderSpec) -> Mapping[str, npt.NDArray[np.float32]]:
    """Values of the decoder's buffers by name; they become blobs of an artifact.

    Returns:
        `inv_freq`, and `inv_freq_1` where layers have another rope: float32 [rotary dim / 2].
    """
    return {
        f"inv_freq_{i}" if i else "inv_freq": inverse_frequencies(rope)
        for i, rope in enumerate(spec.ropes)
    }
