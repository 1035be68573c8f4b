"""Adapters on a device: a slot's matrices are computed on the host and copied to their place.

Without torch: both matrices of each projection go through the upload of weights, as constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vcc.cache.errors import IntegrityError
from vcc.engine.models.lora.spec import A, B, LoraSpec, Projection, lora_of, projections, shapes_of
from vcc.engine.models.tensor_info import SIZES, TensorInfo
from vcc.engine.runtime.adapters import Adapters
from vcc.engine.runtime.player.weight_plan import Home

if TYPE_CHECKING:
    from vcc.engine.models.lora.adapter import Adapter
    from vcc.engine.models.lora.weights_file import Read
    from vcc.engine.runtime.player.layout import WeightPlace
    from vcc.engine.runtime.settings import Boot
    from vcc.engine.runtime.turn import Turn

Float32 = npt.NDArray[np.float32]
Upload = Callable[[Sequence[Home], Mapping[str, bytes]], object]
"""Copies constants to homes in the region of weights."""

NUMPY = {"float32": "<f4", "float16": "<f2"}


def stacked_names(boot: Boot) -> frozenset[str]:
    """Parameters that no checkpoint holds: their slots are written when adapters are loaded.

    They are not cleared before: kernels read the slots that a row of the step names, and no other.
    """
    lora = lora_of(boot.settings.model)
    return frozenset() if lora is None else frozenset(shapes_of(boot.source.spec, lora))


def device_adapters(boot: Boot, place: WeightPlace, upload: Upload, turn: Turn) -> Adapters | None:
    """The adapters of a player; None for code without any.

    Args:
        boot: the artifact.
        place: where its weights are.
        upload: copies to them.
        turn: of the runner; nothing is written while a step runs.

    Raises:
        IntegrityError: the table's matrices are not those of the configuration.
    """
    lora = lora_of(boot.settings.model)
    if lora is None:
        return None
    spec, wanted = boot.source.spec, shapes_of(boot.source.spec, lora)
    homes = {
        one.target: Home(one.target, one.dtype, one.shape, one.address - place.address)
        for one in place.tensors
        if one.target in wanted
    }
    for name, shape in wanted.items():
        if name not in homes or homes[name].shape != shape:
            raise IntegrityError(f"the node table has no {name} of {list(shape)}")
    places = projections(spec, lora)

    def write(slot: int, adapter: Adapter | None) -> None:
        if adapter is None:  # nobody names a slot that no adapter has
            return
        with turn.taken():
            with adapter.weights.reading() as read:
                made = list(_slot(places, lora, homes, slot, adapter, read))
            upload([home for home, _ in made], {home.name: data for home, data in made})

    return Adapters(spec, lora, write, boot.counters)


def _slot(
    places: Sequence[Projection],
    lora: LoraSpec,
    homes: Mapping[str, Home],
    slot: int,
    adapter: Adapter,
    read: Read,
) -> Iterator[tuple[Home, bytes]]:
    """Where each matrix of a slot goes, and its bytes."""
    for one in places:
        a, b = matrices(one, lora.rank, adapter, read)
        for name, data in ((A, a), (B, b)):
            home = homes[f"{one.parameter}.{name}"]
            shape = home.shape[1:]
            offset = home.offset + slot * prod(shape) * SIZES[home.dtype]
            raw = as_bytes(data, home.dtype)
            yield Home(home.name, home.dtype, shape, offset, constant=True), raw


def matrices(place: Projection, rank: int, adapter: Adapter, read: Read) -> tuple[Float32, Float32]:
    """Both matrices of a projection, zero where the adapter has nothing; the scale is in b."""
    a = np.zeros((len(place.modules) * rank, place.inner), np.float32)
    b = np.zeros((sum(place.widths), rank), np.float32)
    start = 0
    for part, (module, width) in enumerate(zip(place.modules, place.widths, strict=True)):
        pair = adapter.pairs.get(module)
        if pair is not None:
            a[part * rank : part * rank + pair.rank] = _values(read(pair.a), pair.a)
            b[start : start + width, : pair.rank] = _values(read(pair.b), pair.b) * np.float32(
                pair.scale
            )
        start += width
    return a, b


def _values(data: bytearray, info: TensorInfo) -> Float32:
    """A floating-point tensor of its bytes."""
    if info.dtype == "bfloat16":
        wide: Any = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        found: Float32 = wide.view(np.float32)
    else:
        found = np.frombuffer(data, NUMPY[info.dtype]).astype(np.float32)
    return found.reshape(info.shape)


def as_bytes(values: Float32, dtype: str) -> bytes:
    """Values in a dtype of weights, rounded to the nearest, ties to even; NaN stays NaN."""
    if dtype != "bfloat16":
        with np.errstate(over="ignore"):
            return values.astype(NUMPY[dtype]).tobytes()
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | 0x40
    return np.where(np.isnan(values), quiet, rounded).astype("<u2").tobytes()
