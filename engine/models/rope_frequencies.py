"""The inverse frequencies that a rope means.

Computed in double precision and rounded once, so that the constant that enters an artifact's key
has the same bytes on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from vcc.cache.errors import ModelError
from vcc.engine.models.rope import RopeSpec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


def inverse_frequencies(rope: RopeSpec) -> npt.NDArray[np.float32]:
    """Inverse frequencies, float32 [dim/2], in radians per position.

    Raises:
        ModelError: a rope whose frequencies depend on a length that nobody settled.
    """
    if rope.kind not in _FREQUENCIES:
        raise ModelError(
            f"rope type {rope.kind!r} has no frequencies yet", "they depend on max_model_len"
        )
    return _FREQUENCIES[rope.kind](rope).astype("float32")


def _plain(rope: RopeSpec) -> Floats:
    import numpy as np  # a look-up computes no frequencies

    return 1.0 / rope.theta ** (np.arange(0, rope.dim, 2, dtype=np.float64) / rope.dim)


def _llama3_frequencies(rope: RopeSpec) -> Floats:
    """Long wavelengths are stretched, short ones kept, a smooth ramp between (Llama 3.1)."""
    import numpy as np

    plain = _plain(rope)
    turns = rope.original * plain / (2 * math.pi)
    keep = np.clip((turns - rope.low) / (rope.high - rope.low), 0.0, 1.0)
    return (1 - keep) * plain / rope.factor + keep * plain


def _yarn_frequencies(rope: RopeSpec) -> Floats:
    """Interpolation by dimension (YaRN, arXiv 2309.00071, section 3.2)."""
    import numpy as np

    low, high = (_turning_dim(rope, turns) for turns in (rope.high, rope.low))
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.dim - 1)
    width = (high - low) or 0.001
    ramp = np.clip((np.arange(rope.dim // 2, dtype=np.float64) - low) / width, 0.0, 1.0)
    plain = _plain(rope)
    return plain / rope.factor * ramp + plain * (1 - ramp)


def _turning_dim(rope: RopeSpec, turns: float) -> float:
    """The dimension whose wavelength turns this often over the original context."""
    ratio = rope.original / (turns * 2 * math.pi)
    return rope.dim * math.log(ratio) / (2 * math.log(rope.theta))


def _scaled(rope: RopeSpec) -> Floats:
    import numpy as np

    found: Floats = _plain(rope) / np.array(rope.factors)
    return found


_FREQUENCIES: dict[str, Callable[[RopeSpec], Floats]] = {
    "default": _plain,
    "linear": lambda rope: _plain(rope) / rope.factor,
    "llama3": _llama3_frequencies,
    "yarn": _yarn_frequencies,
    "scaled": _scaled,
}
