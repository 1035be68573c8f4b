"""The values of a checkpoint's scales: positive, finite, and one where parts share an input.

Torch-free. A scale is a few bytes, and a bad one makes every answer wrong without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from vcc.cache.errors import ModelError
from vcc.cache.named_files import open_named
from vcc.engine.models.bindings import all_weights
from vcc.engine.models.decoder_spec import DecoderSpec
from vcc.engine.models.quant.weights import Scales
from vcc.engine.models.tensor_info import TensorInfo

if TYPE_CHECKING:
    import numpy.typing as npt

_HINT = "the checkpoint is damaged or was made wrongly: get it again"

INFINITE: Mapping[str, tuple[str, int, int]] = {
    "float32": ("<u4", 0x7F800000, 0x7B124924),
    "bfloat16": ("<u2", 0x7F80, 0x7B12),
    "float16": ("<u2", 0x7C00, 0x7BFF),
}
"""How numpy reads the bits of a scale, the bits of infinity and those of the largest scale whose
product with 448, the largest fp8 number, is finite in fp32. The bits of NaN and of negative numbers
are above infinity, those of positive numbers between zero and it."""


def check_scales(spec: DecoderSpec, tensors: Mapping[str, TensorInfo]) -> None:
    """Refuse a checkpoint with a scale that is none.

    Args:
        spec: the decoder.
        tensors: of the checkpoint; without files nothing is read.

    Raises:
        ModelError: a scale is zero, negative, infinite or NaN, parts that share an input have
            different scales for it, or a file is cut short.
    """
    if spec.quant is None:
        return
    with ExitStack() as stack:
        files = _Files(stack)
        for weight in all_weights(spec):
            if isinstance(weight, Scales):
                for group in weight.groups():
                    _check({name: tensors[name] for name, _ in group}, files, weight.shared)


@dataclass(frozen=True, slots=True)
class _Files:
    """Files that stay open between scales: experts have tens of thousands of them."""

    stack: ExitStack
    opened: dict[Path, BinaryIO] = field(default_factory=dict)

    def at(self, path: Path, start: int) -> BinaryIO:
        """The file, at this byte."""
        if path not in self.opened:
            self.opened[path] = self.stack.enter_context(open_named(path, pipes=False))
        self.opened[path].seek(start)
        return self.opened[path]


def _check(found: Mapping[str, TensorInfo], files: _Files, shared: bool) -> None:
    there = ((name, info) for name, info in found.items() if info.file is not None)
    read = [(name, _bits(info, files), info.dtype) for name, info in there]
    for name, bits, dtype in read:
        _check_values(name, bits, *INFINITE[dtype][1:])
    if shared and len({(bits.tobytes(), dtype) for _, bits, dtype in read}) > 1:
        listed = ", ".join(_shown(read))
        raise ModelError(
            f"{read[0][0]} and {read[1][0]} differ",
            f"they are scales of one input, which is quantised once: {listed}",
            "calibrate the checkpoint with one observer for projections of the same input",
        )


def _check_values(name: str, bits: npt.NDArray[Any], infinite: int, largest: int) -> None:
    bad = (bits == 0) | (bits > largest)
    if not bad.any():
        return
    at = int(bad.argmax())
    kind = _kind(int(bits[at]), infinite, bits.dtype.itemsize * 8)
    raise ModelError(f"{name} has a scale that is {kind}", f"element {at} of {bits.size}", _HINT)


def _kind(bits: int, infinite: int, width: int) -> str:
    sign, rest = bits >> (width - 1), bits & ((1 << (width - 1)) - 1)
    if not sign and rest < infinite and rest:
        return "so large that 448 of it are infinite"
    if rest > infinite:
        return "NaN"
    if rest == 0:
        return "zero"
    return "negative" if sign else "infinite"


def _bits(info: TensorInfo, files: _Files) -> npt.NDArray[Any]:
    import numpy as np  # a run that needs no scales does without

    file = info.stored()
    try:
        data = files.at(file, info.start).read(info.end - info.start)
    except OSError as error:
        raise ModelError(f"cannot read {file}", str(error.strerror)) from error
    if len(data) != info.end - info.start:
        raise ModelError(f"{file} is shorter than its header says", hint="get it again")
    return np.frombuffer(data, INFINITE[info.dtype][0])


def _shown(read: list[tuple[str, npt.NDArray[Any], str]]) -> Iterator[str]:
    import numpy as np

    for name, bits, dtype in read:
        wide = bits.astype("<u4") << 16 if dtype == "bfloat16" else bits
        value = wide.view("<f4" if dtype != "float16" else "<f2")
        yield f"{name.rsplit('.', 2)[-2]} {np.float32(value.flat[0]):.6g}"
