"""What every boot of the player begins with: the device, and the artifact's tables and kernels."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from vcc.cache.errors import DeviceError, IntegrityError
from vcc.engine.graphs.blob_names import CONSTANT, CUBIN
from vcc.engine.runtime.host import version_text
from vcc.engine.runtime.player.device import Device, open_device

if TYPE_CHECKING:
    from vcc.cache.manifest import Manifest
    from vcc.engine.runtime.player.handle import PlayerHandle
    from vcc.engine.runtime.settings import Boot


def open_context(boot: Boot) -> Device:
    """The device that a boot is for, opened and checked.

    Raises:
        DeviceError: no device, another one than the artifact is for, an older driver.
    """
    with boot.ledger.phase("context"):
        device = open_device()
        boot.ledger.add_beside("context", device.seconds)
        check_device(device, boot.loaded.manifest)
    return device


def check_device(device: Device, manifest: Manifest) -> None:
    """Refuse a device or driver that the artifact is not for.

    Raises:
        DeviceError: says which it is for and which there is.
    """
    from vcc.engine.runtime.rebuild import rebuild_command  # for a refusal only

    rules = manifest.host_rules
    wanted = rules.get("arch", device.arch)
    if wanted != device.arch:
        raise DeviceError(
            f"the artifact is for {wanted}",
            f"{device.name} is {device.arch}",
            f"compile it for this device: {rebuild_command(manifest, device.arch)}",
        )
    needed = rules.get("driver", "")
    least = int(needed) if needed.isdigit() else 0
    if device.driver < least:
        raise DeviceError(
            "the CUDA driver is too old for the artifact",
            f"it is of CUDA {version_text(device.driver)}, needed is {version_text(least)}",
            f"install a driver of CUDA {version_text(least)} or later, or build it with an older "
            f"toolkit: {rebuild_command(manifest, device.arch)}",
        )


def read_parts(boot: Boot, tables: Collection[str]) -> dict[str, bytes]:
    """The node tables of these names, and all cubins and constants.

    Raises:
        IntegrityError: a cubin is named after another one.
        Damaged: a blob is not what was published.
    """
    names = boot.loaded.manifest.blobs
    wanted = [name for name in names if name in tables or name.startswith((CUBIN, CONSTANT))]
    for name in wanted:
        if name.startswith(CUBIN) and names[name].digest.hex != name.removeprefix(CUBIN):
            raise IntegrityError(f"blob {name[:80]} is another file than its name says")
    return boot.loaded.read_all(wanted)


def add_cubins(handle: PlayerHandle, blobs: Mapping[str, bytes]) -> int:
    """Load the cubins among an artifact's blobs; how many.

    Raises:
        IntegrityError, DeviceError: one is refused.
    """
    found = {
        name.removeprefix(CUBIN): data for name, data in blobs.items() if name.startswith(CUBIN)
    }
    handle.add_cubins(found)
    return len(found)
