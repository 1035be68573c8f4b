"""What a build refuses before it traces: asked by builds, dry runs and checks of prewarm files.

`check_request` is about what was asked for and needs no torch. `check_here` asks this machine's
torch and GPU, as a build's later stages do.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from vcc.cache.errors import ConfigError, DeviceError, StorageError, UsageError
from vcc.engine.compile.versions import has_torch
from vcc.engine.config.artifacts import Content
from vcc.engine.config.inductor_options import check_level
from vcc.engine.config.modes import Backend, Platform
from vcc.engine.config.op_names import bare_name
from vcc.engine.models.bindings import check_number
from vcc.engine.models.factory import FactoryRef
from vcc.engine.models.shapes import check_declared
from vcc.engine.ops.backends import BACKENDS
from vcc.engine.recordable import check_recorded
from vcc.engine.request import Settled

OWN = "vcc::"


def check_request(settled: Settled) -> None:
    """Refuse a request that no build of its target can fulfil.

    Raises:
        ModelError: a decoder whose bindings no manifest can hold, a factory without inputs.
        ConfigError: a splitting op of vcc's that does not exist; on a GPU, no device profile, a
            model that is no decoder, or adapters or fp8 weights in a recording.
        DeviceError: a CPU level that no code is made for.
    """
    request = settled.request
    if request.source.kind == "decoder":
        check_number(request.source.spec)
    if type(request.source.factory) is FactoryRef and _makes_code(settled):
        check_declared(request.source.shapes)
    check_recorded(settled, recorded=settled.resolved.artifact.needs_gpu)
    known = own_operators()
    for name in _cuts(settled, own=True):
        if bare_name(name) not in known:
            raise no_such_op(name, known)
    if not _calls_inductor(settled):
        return
    if request.target.platform is Platform.CPU:
        check_level(request.target.arch)
    else:
        from vcc.engine.compile.gpu import device_profile  # of GPU builds only

        device_profile(settled)


def check_here(settled: Settled) -> tuple[str, ...]:
    """Refuse what this machine's torch or GPU rules out; a line for each open question.

    Torch is imported only where its answer is needed.

    Raises:
        ConfigError: a splitting op or an option of Inductor that does not exist.
        DeviceError: a recording is asked for, and there is no GPU.
        StorageError: as `check_keep`.
    """
    check_keep(settled.request.keep)
    if settled.resolved.artifact.needs_gpu:
        check_recordable()
    if not has_torch():
        return ("nothing can be built here: torch is not installed",)
    options = dict(settled.request.compilation.inductor_config or ())
    if options and _calls_inductor(settled):
        from vcc.engine.torch_shim.inductor import check_options

        check_options(options)
    return (*_own_code(settled), *_open_cuts(settled))


def check_keep(folder: Path | None) -> None:
    """Refuse a folder for intermediate files in which none can be made; nothing is made here.

    Raises:
        StorageError: it or what it would be made in is no folder, or may not be written to.
    """
    if folder is None:
        return
    task = f"cannot keep intermediate files in {folder}"
    hint = "give --keep a folder that you may write to"
    try:
        place = _that_exists(folder.absolute())
        too_long = next((one for one in folder.parts if _is_too_long(one, place)), None)
    except (OSError, ValueError) as error:
        raise StorageError(task, str(error), hint) from error
    if not place.is_dir():
        raise StorageError(task, f"{place} is no folder", hint)
    if too_long is not None:
        raise StorageError(task, f"the name {too_long[:16]}… is too long", hint)
    if not os.access(place, os.W_OK | os.X_OK):
        raise StorageError(task, f"nothing can be written in {place}", hint)


def _that_exists(path: Path) -> Path:
    """The path, or the closest folder above it; a link that leads nowhere is an OSError."""
    for one in (path, *path.parents):
        try:
            one.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        one.stat()
        return one
    return path


def _is_too_long(name: str, within: Path) -> bool:
    return len(os.fsencode(name)) > os.pathconf(within, "PC_NAME_MAX")


def _own_code(settled: Settled) -> Iterator[str]:
    """A module of the user's is not imported to answer a question."""
    if type(settled.request.source.factory) is FactoryRef:
        name = settled.request.source.name
        yield f"a build finds out whether {name} gives a module: it runs code of yours"


def check_recordable() -> None:
    """Refuse to record where there is no GPU.

    Raises:
        DeviceError: with what the driver says.
    """
    from vcc.engine.runtime.player.device import open_device

    try:
        open_device()
    except (DeviceError, UsageError) as error:  # the latter: this process has another driver
        raise no_recording(str(error)) from error


def no_recording(why: str) -> DeviceError:
    """The refusal of a recording on a machine without a GPU."""
    return DeviceError(
        "graphs can only be recorded on a GPU",
        why,
        "use --compile vcc, which needs no GPU, or run this on the GPU machine",
    )


def no_such_op(name: str, known: Iterable[str]) -> ConfigError:
    """The refusal of a splitting op that nobody registers, with the closest of `known`."""
    close = difflib.get_close_matches(name, [*known], n=3, cutoff=0.7)
    hint = f"did you mean {' or '.join(close)}?" if close else "its name is namespace::op"
    return ConfigError(
        f"splitting op {name} does not exist", "no operator of this name is registered", hint
    )


def own_operators() -> tuple[str, ...]:
    """Names of vcc's operators, from the tables of their kernels: known without torch."""
    names = {op for backend in BACKENDS.values() for op in backend.surface}
    return tuple(sorted(OWN + op for op in names))


def _open_cuts(settled: Settled) -> Iterator[str]:
    names = tuple(_cuts(settled, own=False))
    if not names:
        return
    from vcc.engine.ops.register import load_ops
    from vcc.engine.torch_shim.nodes import is_registered, registered_names

    load_ops()
    for name in (name for name in names if not is_registered(name)):
        if not _runs_code(settled):
            raise no_such_op(name, registered_names())
        yield f"a build finds out whether splitting op {name} exists: it runs code of yours"


def _cuts(settled: Settled, *, own: bool) -> Iterator[str]:
    """The splitting ops that somebody named: vcc's own, or the others."""
    if settled.request.compilation.splitting_ops:
        names = settled.resolved.config.splitting_ops or ()
        yield from (name for name in names if name.startswith(OWN) is own)


def _runs_code(settled: Settled) -> bool:
    """Whether a build runs code of the user's, which may register operators."""
    config, ops = settled.resolved.config, settled.resolved.ops
    return bool(settled.request.source.kind != "decoder" or config.user_passes or ops.layers)


def _makes_code(settled: Settled) -> bool:
    """Whether code is made of a trace; a recording takes what runs."""
    rule = settled.resolved.artifact
    return not rule.needs_gpu and bool({Content.PIECES, Content.CUBINS} & set(rule.holds))


def _calls_inductor(settled: Settled) -> bool:
    return _makes_code(settled) and settled.resolved.config.backend is not Backend.EAGER
