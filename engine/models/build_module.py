"""Building the module that `module:factory` names; the one place where a model's code runs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from torch import nn

from vcc.cache.errors import ModelError
from vcc.engine.models.factory import FactoryRef, LiveRef


def build_module(ref: FactoryRef) -> nn.Module:
    """The module of `made_by` in evaluation mode; arguments and errors as there."""
    return made_by(ref).eval()


def made_by(ref: FactoryRef) -> nn.Module:
    """Import the factory and call it, or take the module it names or holds.

    Args:
        ref: the factory; its module is looked for in the working directory before `sys.path`.

    Returns:
        The module in the mode in which the factory gives it; one that is held in evaluation mode.

    Raises:
        ModelError: the import or the call fails, the name is missing, or no nn.Module comes back.
    """
    if isinstance(ref, LiveRef):
        held: nn.Module = ref.held.eval()
        return held
    found = named_object(ref)
    with _searching(), redirect_stdout(sys.stderr):
        made = _called(ref, found)
    if not isinstance(made, nn.Module):
        raise ModelError(
            f"{ref} gives no nn.Module",
            f"it gives a {type(made).__name__}",
            "return the module from the function, or name an nn.Module itself",
        )
    return made


def named_object(ref: FactoryRef) -> Any:
    """Import a module and take what the reference names in it; looked for as above.

    Raises:
        ModelError: the import fails or the name is missing.
    """
    # What the user's code prints is no output of ours: standard output may hold our JSON.
    with _searching(), redirect_stdout(sys.stderr):
        return _attribute(ref, _imported(ref))


@contextmanager
def _searching() -> Iterator[None]:
    """The same search order as `sources_of`, for this import only."""
    root = str(Path.cwd())
    sys.path.insert(0, root)
    try:
        yield
    finally:
        sys.path.remove(root)


def _imported(ref: FactoryRef) -> Any:
    try:
        return importlib.import_module(ref.module)
    except (Exception, SystemExit) as error:
        raise ModelError(
            f"cannot import {ref.module}",
            f"{type(error).__name__}: {error}",
            f"python -c 'import {ref.module}' in this directory shows where",
        ) from error


def _attribute(ref: FactoryRef, module: Any) -> Any:
    found = module
    for name in ref.attribute.split("."):
        if not hasattr(found, name):
            public = sorted(name for name in vars(module) if not name.startswith("_"))
            raise ModelError(
                f"{ref.module} has no {ref.attribute}", hint=f"it has: {', '.join(public[:20])}"
            )
        found = getattr(found, name)
    return found


def _called(ref: FactoryRef, made: Any) -> Any:
    if isinstance(made, nn.Module) or not callable(made):
        return made
    try:
        return made()
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}"
        hint = "it is called without arguments, and has to return an nn.Module"
        raise ModelError(f"{ref} failed", why, hint) from error
