"""Which passes a build runs: ours that are switched on, and the user's at their place."""

from __future__ import annotations

from collections.abc import Sequence

from vcc.cache.errors import ConfigError, ModelError
from vcc.engine.config.types import CompilationConfig
from vcc.engine.models.build_module import named_object
from vcc.engine.passes.apply import PASSES, USER_PASSES_BEFORE, check_is_pass, enabled
from vcc.engine.passes.base import Pass
from vcc.engine.user_passes import reference


def chosen(config: CompilationConfig) -> tuple[Pass, ...]:
    """The passes of a resolved configuration, in the order in which they run.

    Raises:
        ConfigError: a pass of the user's cannot be loaded.
        UsageError: what is named is no pass.
    """
    ours = tuple(one.name for one in PASSES)
    place = ours.index(USER_PASSES_BEFORE)
    mine = load(config.user_passes or ())
    on = enabled(config.pass_config)
    before = tuple(one for one in on if ours.index(one.name) < place)
    return (*before, *mine, *on[len(before) :])


def load(names: Sequence[str]) -> tuple[Pass, ...]:
    """Import passes; this runs the user's code, and only a build does so.

    Raises:
        ConfigError: a module cannot be imported, a name is missing, or two passes have one name.
        UsageError: what is named is no pass.
    """
    found = tuple(load_one(name) for name in names)
    taken = [one.name for one in (*PASSES, *found)]
    for name, one in zip(names, found, strict=True):
        if taken.count(one.name) > 1:
            raise ConfigError(
                f"two passes are called {one.name}",
                f"one of them is {name}",
                "a report and a key could not tell them apart: rename it",
            )
    return found


def load_one(name: str) -> Pass:
    """Import the pass that an entry point or `module:NAME` names; errors as in `load`."""
    try:
        found = named_object(reference(name))
    except ModelError as error:
        raise ConfigError(f"pass {name} cannot be loaded", str(error), error.hint) from error
    check_is_pass(found)
    one: Pass = found
    return one
