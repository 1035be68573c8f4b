"""Goldens at a boot of the player: none, the cheapest or all, as it was asked for."""

from __future__ import annotations

from vcc.engine.runtime.player.handle import PlayerHandle
from vcc.engine.runtime.settings import Boot


def has_goldens(boot: Boot) -> bool:
    """Whether the artifact has any."""
    return any(name.startswith("golden/") for name in boot.loaded.manifest.blobs)


def import_goldens() -> None:
    """Beside the opening of the device: numpy's generators alone take longer than a check."""
    import numpy.random  # noqa: F401

    import vcc.engine.runtime.player.golden  # noqa: F401


def check_some(boot: Boot, handle: PlayerHandle) -> None:
    """Check as many as the boot asks for, and note which pieces have none.

    Raises:
        IntegrityError: a piece computes something else on this device.
    """
    if boot.golden == "off":
        return
    checked = 0
    if has_goldens(boot):
        from vcc.engine.runtime.player.golden import check_goldens

        checked = check_goldens(boot.loaded, handle, boot.golden)
    said = boot.loaded.manifest.info.get("goldens")
    lacking = (
        [why for why in said.values() if isinstance(why, str)] if isinstance(said, dict) else []
    )
    if lacking and (boot.golden == "all" or not checked):
        boot.events.note(
            f"golden: {checked} checked, {len(lacking)} pieces have none: {lacking[0]}"
        )
