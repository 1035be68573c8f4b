"""vcc doctor: what of this machine can be used, and the profile of its GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from vcc.cli import options
from vcc.cli.console import columns, err, out, out_json

if TYPE_CHECKING:
    from vcc.engine.doctor import Report


def doctor_command(
    profile: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--profile", metavar="FILE", help="write the GPU's profile to FILE; - prints it"
        ),
    ] = None,
    device: Annotated[
        int, typer.Option("--device", metavar="N", min=0, help="the GPU of --profile")
    ] = 0,
    cache_dir: options.CacheDir = None,
    json: options.Json = False,
) -> None:
    """Say what vcc finds on this machine and what is missing."""
    if profile is not None:
        _write_profile(profile, device)
        return
    from vcc.cache.errors import Exit
    from vcc.cache.store import Store
    from vcc.engine.doctor import examine

    report = examine(Store.open(cache_dir))
    if json:
        out_json(report.as_dict())
    else:
        out(_as_text(report))
    if not report.healthy:
        raise typer.Exit(Exit.NEGATIVE)


def _as_text(report: Report) -> str:
    from vcc.engine.torch_shim.profiles import PROFILES

    rows = [(one.state, one.name, one.what) for one in report.findings]
    lines = [columns(rows)]
    lines += [f"hint: {one.name}: {one.hint}" for one in report.findings if one.hint]
    targets = [(name, profile.name) for name, profile in PROFILES.items()]
    lines += ["", "targets that can be built for, and the device each profile is of", ""]
    return "\n".join([*lines, columns(targets)])


def _write_profile(file: Path, ordinal: int) -> None:
    from vcc.cache.errors import StorageError
    from vcc.engine.devices import device
    from vcc.engine.torch_shim.profiles import to_json

    found = device(ordinal).profile
    text = to_json(found)
    if str(file) == "-":
        out(text, end="")
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"cannot write the profile to {file}",
            str(error),
            "give a file that this account can write",
        ) from error
    err(f"{file}: {found.name}, {found.target}")
