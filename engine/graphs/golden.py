"""Piece goldens: inputs drawn from a name, a reference, and the error a piece may have.

A golden needs neither checkpoint nor device to make and little to store: its arguments are drawn
again from the piece's id. The blob is a safetensors file: tensor ``<n>`` is the fp32 reference of
output n; the metadata entry ``golden`` is JSON: the drawn arguments' geometry (``arguments``), the
bound of drawn integers (``below``) and the bounds on each output's error (``bounds``). It is one
entry because safetensors writes several in an order that changes from call to call. For a GPU the
tensor ``table`` holds a node table of one call, and ``strides`` says how outputs lie in its memory.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from math import prod
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.program import Element

Array = npt.NDArray[np.float32]

LARGEST = 1 << 40
"""Most elements of an argument: none that was made has as many, so a blob that says so is bad."""

BLOCK = 65521
"""Values drawn for each argument; prime, so that repeated rows of a matrix differ."""


class WrongResult(IntegrityError):
    """A piece computes something else here than its golden says."""


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
        terms: how many of its elements each result of a convolution sums over; 0: no filter.
    """

    dtype: str
    shape: tuple[int, ...]
    symbolic: bool
    terms: int = 0


@dataclass(frozen=True, slots=True)
class Golden:
    """Arguments to draw, fp32 references of the last of them, and their bounds.

    Attributes:
        arguments: in the order of the piece; the outputs' buffers come last.
        below: integers are drawn below this: the smallest size that is indexed.
        references, bounds: in output order.
        table: a node table of one call of the piece, where a player computes it.
        strides: of each output there, in elements.
    """

    arguments: tuple[Argument, ...]
    below: int
    references: tuple[Array, ...]
    bounds: tuple[Bound, ...]
    table: bytes = b""
    strides: tuple[tuple[int, ...], ...] = ()

    def encode(self) -> bytes:
        """The blob."""
        from safetensors.numpy import save

        content: dict[str, Any] = {
            "arguments": [_entry(argument) for argument in self.arguments],
            "below": self.below,
            "bounds": [[bound.maximum, bound.rms] for bound in self.bounds],
        }
        tensors: dict[str, npt.NDArray[Any]] = {
            str(index): array for index, array in enumerate(self.references)
        }
        if self.table:
            content["strides"] = self.strides
            tensors["table"] = np.frombuffer(self.table, np.uint8)
        return bytes(save(tensors, metadata={"golden": json.dumps(content)}))

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
            content = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["golden"])
            arrays = load(data)
            bounds = tuple(_bound(pair) for pair in content["bounds"])
            golden = cls(
                tuple(_argument(entry) for entry in content["arguments"]),
                content["below"],
                tuple(arrays[str(index)] for index in range(len(bounds))),
                bounds,
                arrays["table"].tobytes() if "table" in arrays else b"",
                tuple(_stride(entry) for entry in content.get("strides", ())),
            )
            _check(golden)
        except (ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
            raise IntegrityError("golden refused", str(error)[:200]) from None
        return golden

    @property
    def argument_bytes(self) -> int:
        """Bytes that the drawn arguments take, four for an element."""
        return sum(_count(argument) * 4 for argument in self.arguments)


def _bound(pair: Any) -> Bound:
    bound = Bound(*pair)
    if not all(isinstance(v, float) and 0.0 <= v < float("inf") for v in pair):
        raise ValueError(f"bound {pair!r:.80}")
    return bound


def _entry(one: Argument) -> list[Any]:
    return [one.dtype, one.shape, one.symbolic, *([one.terms] if one.terms else [])]


def _argument(entry: Any) -> Argument:
    dtype, shape, symbolic, *more = entry
    sizes, terms = tuple(shape), more[0] if more else 0
    plain = all(type(size) is int and size >= 0 for size in sizes) and type(symbolic) is bool
    plain = plain and len(more) < 2 and type(terms) is int and 0 <= terms <= LARGEST
    if dtype not in get_args(Element) or not plain or prod(sizes) > LARGEST:
        raise ValueError(f"argument {entry!r:.80}")
    return Argument(dtype, sizes, symbolic, terms)


def _stride(entry: Any) -> tuple[int, ...]:
    steps = tuple(entry)
    if not all(type(step) is int and 0 <= step <= LARGEST for step in steps):
        raise ValueError(f"stride {entry!r:.80}")
    return steps


def _check(golden: Golden) -> None:
    outs = golden.arguments[len(golden.arguments) - len(golden.references) :]
    shapes = tuple(reference.shape for reference in golden.references)
    if (
        type(golden.below) is not int
        or golden.below < 1
        or tuple(argument.shape for argument in outs) != shapes
    ):
        raise ValueError("the references are not those of its arguments")
    ranks = tuple(len(stride) for stride in golden.strides)
    if golden.table and ranks != tuple(len(shape) for shape in shapes):
        raise ValueError("the strides are not those of its outputs")
    if any(reference.dtype != np.float32 for reference in golden.references):
        raise ValueError("the references are not fp32")


def draw(name: str, index: int, one: Argument) -> Array:
    """The fp32 values that argument `index` of the piece `name` repeats, at most `BLOCK` of them.

    Activations have unit variance; matrices are scaled by their inner size and filters by the
    terms of their sums, so that results keep it; vectors lie around 1, as norm weights do.
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
    return np.float32(0.0), np.float32((3.0 / (one.terms or one.shape[-1])) ** 0.5)


def _count(one: Argument) -> int:
    return prod(one.shape)


def _raw(name: str, index: int, count: int) -> npt.NDArray[np.uint64]:
    key = hashlib.sha256(f"{name}:{index}".encode()).digest()[:16]
    # Raw Philox words are the same in every numpy release; its distributions are not.
    generator = np.random.Philox(key=int.from_bytes(key, "little"))
    return np.asarray(generator.random_raw(count), dtype=np.uint64)


def errors(got: Array, reference: Array) -> tuple[float, float]:
    """Largest and root-mean-square difference where the reference is finite."""
    finite = np.isfinite(reference)
    error = np.abs(got[finite].astype(np.float64) - reference[finite])
    return float(error.max(initial=0.0)), float(np.sqrt(np.mean(error**2))) if error.size else 0.0


def exceeds(got: Array, reference: Array, bound: Bound) -> str | None:
    """Why `got` is not the golden's answer, or None.

    Where the reference is infinite or no number (a logarithm of drawn values), so must `got` be.
    """
    if got.shape != reference.shape:
        return f"the result has shape {list(got.shape)}, not {list(reference.shape)}"
    finite = np.isfinite(reference)
    if not np.isfinite(got[finite]).all():
        return "the result is not finite"
    if not np.array_equal(got[~finite], reference[~finite], equal_nan=True):
        return "the result is finite, or of another sign, where the reference is infinite"
    maximum, rms = errors(got, reference)
    if maximum > bound.maximum or rms > bound.rms:
        return f"error {maximum:.3g} (rms {rms:.3g}) is above {bound.maximum:.3g} ({bound.rms:.3g})"
    return None
