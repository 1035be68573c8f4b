"""Adapters of a player where the artifact declares them; what they need is imported only then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from vcc.engine.runtime.player import weights as upload

if TYPE_CHECKING:
    from vcc.engine.runtime.adapters import Adapters
    from vcc.engine.runtime.player.device import Device
    from vcc.engine.runtime.player.layout import WeightPlace
    from vcc.engine.runtime.player.weight_plan import Home
    from vcc.engine.runtime.settings import Boot
    from vcc.engine.runtime.turn import Turn


def adapting(boot: Boot, device: Device, place: WeightPlace) -> Callable[[Turn], Adapters | None]:
    """What makes the adapters of a runner from its turn.

    Args:
        boot: the artifact.
        device: where its weights are.
        place: of all of them.
    """
    if not boot.settings.model.enable_lora:
        return lambda turn: None
    from vcc.engine.runtime.player.adapters import device_adapters

    def put(homes: Sequence[Home], constants: Mapping[str, bytes]) -> upload.WeightReport:
        plan = upload.plan_weights(homes, {}, {}, constants)
        return upload.load(plan, device.handle, place.address, place.bytes)

    return lambda turn: device_adapters(boot, place, put, turn)


def stacked(boot: Boot) -> frozenset[str]:
    """Parameters that no checkpoint holds: adapters are written there when they are loaded."""
    if not boot.settings.model.enable_lora:
        return frozenset()
    from vcc.engine.runtime.player.adapters import stacked_names

    return stacked_names(boot)
