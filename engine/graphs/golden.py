"""Piece goldens: inputs drawn from a name, a reference, and the error a piece may have.

A golden needs neither checkpoint nor device to make and little to store: its arguments are drawn
again from the piece's id. The blob is a safetensors file: tensor ``<n>`` is the fp32 reference of
output n; the metadata holds the drawn arguments' geometry and the bound on each output's error.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vcc.cache.errors import IntegrityError

Array = npt.NDArray[np.float32]

BLOCK = 65521
"""Values drawn for each argument; prime, so that repeated rows of a matrix differ."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Largest and root-mean-square error that an output may have against its reference."""

    maximum: float
    rms: float


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a piece, buffers included.

    Attributes:
        dtype: torch's name.
        shape: concrete sizes.
        symbolic: an activation rather than a weight.
    """

    dtype: str
    shape: tuple[int, ...]
    symbolic: bool


@dataclass(frozen=True, slots=True)
class Golden:
    """Arguments to draw, fp32 references of the last of them, and their bounds.

    Attributes:
        arguments: in the order of the piece; the outputs' buffers come last.
        below: integers are drawn below this: the smallest size that is indexed.
        references, bounds: in output order.
    """

    arguments: tuple[Argument, ...]
    below: int
    references: tuple[Array, ...]
    bounds: tuple[Bound, ...]

    def encode(self) -> bytes:
        """The blob."""
        from safetensors.numpy import save

        metadata = {
            "arguments": json.dumps([[a.dtype, a.shape, a.symbolic] for a in self.arguments]),
            "below": str(self.below),
            "bounds": json.dumps([[bound.maximum, bound.rms] for bound in self.bounds]),
        }
        tensors = {str(index): array for index, array in enumerate(self.references)}
        return bytes(save(tensors, metadata=metadata))

    @classmethod
    def decode(cls, data: bytes) -> Golden:
        """Read a blob.

        Raises:
            IntegrityError: not a golden.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            size = int.from_bytes(data[:8], "little")
            metadata = json.loads(data[8 : 8 + size])["__metadata__"]
            arrays = load(data)
            bounds = tuple(Bound(*pair) for pair in json.loads(metadata["bounds"]))
            arguments = json.loads(metadata["arguments"])
            return cls(
                tuple(Argument(dtype, tuple(shape), sym) for dtype, shape, sym in arguments),
                int(metadata["below"]),
                tuple(arrays[str(index)] for index in range(len(bounds))),
                bounds,
            )
        except (ValueError, KeyError, TypeError, SafetensorError) as error:
            raise IntegrityError("golden refused", str(error)) from None

    @property
    def argument_bytes(self) -> int:
        """Bytes that the drawn arguments take, four for an element."""
        return sum(int(np.prod(a.shape, dtype=np.int64)) * 4 for a in self.arguments)


def draw(name: str, index: int, one: Argument) -> Array:
    """The fp32 values that argument `index` of the piece `name` repeats, at most `BLOCK` of them.

    Activations have unit variance; matrices are scaled by their inner size, so that results keep
    it; vectors lie around 1, as norm weights do.
    """
    raw = _raw(name, index, min(_count(one), BLOCK))
    units = (raw >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1.0)
    offset, scale = _range(one)
    return np.asarray(offset + scale * units, dtype=np.float32)


def draw_integers(name: str, index: int, one: Argument, below: int) -> npt.NDArray[np.int64]:
    """Integers in [0, below) that an index argument repeats: safe for every size it indexes."""
    words = _raw(name, index, min(_count(one), BLOCK)) % np.uint64(below)
    return np.asarray(words, dtype=np.int64)


def _range(one: Argument) -> tuple[np.float32, np.float32]:
    if one.symbolic:
        return np.float32(0.0), np.float32(1.7)
    if len(one.shape) < 2:
        return np.float32(1.0), np.float32(0.3)
    return np.float32(0.0), np.float32((3.0 / one.shape[-1]) ** 0.5)


def _count(one: Argument) -> int:
    return int(np.prod(one.shape, dtype=np.int64))


def _raw(name: str, index: int, count: int) -> npt.NDArray[np.uint64]:
    key = hashlib.sha256(f"{name}:{index}".encode()).digest()[:16]
    # Raw Philox words are the same in every numpy release; its distributions are not.
    generator = np.random.Philox(key=int.from_bytes(key, "little"))
    return np.asarray(generator.random_raw(count), dtype=np.uint64)


def exceeds(got: Array, reference: Array, bound: Bound) -> str | None:
    """Why `got` is not the golden's answer, or None."""
    error = np.abs(got.astype(np.float64) - reference)
    if not np.isfinite(error).all():
        return "the result is not finite"
    maximum, rms = float(error.max(initial=0.0)), float(np.sqrt(np.mean(error**2)))
    if maximum > bound.maximum or rms > bound.rms:
        return f"error {maximum:.3g} (rms {rms:.3g}) is above {bound.maximum:.3g} ({bound.rms:.3g})"
    return None
