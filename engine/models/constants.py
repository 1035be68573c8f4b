"""Tensors of a model that are computed from its config instead of read from its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from vcc.engine.models.architectures import DecoderSpec
from vcc.engine.models.rope import inverse_frequencies


def constants_of(spec: DecoderSpec) -> Mapping[str, npt.NDArray[np.float32]]:
    """Values of the decoder's buffers by name; they become blobs of an artifact.

    Returns:
        `inv_freq`: float32 [rotary dim / 2].
    """
    return {"inv_freq": inverse_frequencies(spec.rope)}
