"""What a request says of custom ops beside on and off: back ends and classes of the user's.

Every run settles its request, so nothing of a build is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping

from vcc.cache.errors import ConfigError
from vcc.engine.config.custom_ops import OpChoices
from vcc.engine.config.modes import CompileMode, Platform
from vcc.engine.user_code import LAYER, source_digest

SOURCE = "user_op."
"""Labels of key entries: the digest of what a replacement is written in."""


def source_entries(ops: OpChoices) -> Mapping[str, str]:
    """A key entry for each replaced layer: the digest of its module and of what that imports.

    Raises:
        ConfigError: a class or its source cannot be found.
    """
    return {SOURCE + op: source_digest(LAYER, name) for op, name in ops.layers}


def check_asked(ops: OpChoices, platform: Platform, mode: CompileMode) -> None:
    """Refuse wishes that no install could grant.

    Raises:
        ConfigError: a back end that the platform does not have, or a class of the user's where
            nothing is built.
    """
    for op, backend in ops.asked:
        from vcc.engine.ops.backends import names_of, order_of  # most requests ask for none

        if backend not in names_of(platform.value):
            raise ConfigError(
                f'custom op "{op}" has no back end "{backend}" on {platform.value}',
                f'"+{op}:{backend}" was asked for',
                f"{platform.value} has {', '.join(order_of(platform.value))}",
            )
    if ops.layers and not mode.rewrites:
        op, name = ops.layers[0]
        raise ConfigError(
            f"{mode.name} makes its layers where it runs, and runs no class of the user's there",
            f'"+{op}={name}" was asked for',
            "leave it out, or use --compile vcc",
        )
