"""Classes of the user's in the place of layers: imported by name; only a build does so."""

from __future__ import annotations

from collections.abc import Iterable

from vcc.cache.errors import ConfigError, ModelError, UsageError
from vcc.engine.models.build_module import named_object
from vcc.engine.ops import layers
from vcc.engine.ops.custom_op import CustomOp, check_replaces
from vcc.engine.ops.names import CUSTOM_OPS
from vcc.engine.user_code import LAYER, reference


def load_layers(named: Iterable[tuple[str, str]]) -> tuple[tuple[str, type[CustomOp]], ...]:
    """Import replacements; this runs the user's code.

    Args:
        named: (custom op, entry point of group `vcc.ops` or `module:Class`) pairs.

    Returns:
        (name of the replaced layer, class) pairs, as `OpChoice.replacements` has them.

    Raises:
        ConfigError: a module cannot be imported or a name is missing.
        UsageError: what is named is no subclass of the layer.
    """
    return tuple((CUSTOM_OPS[op].layer, load_layer(op, name)) for op, name in named)


def load_layer(op: str, name: str) -> type[CustomOp]:
    """Import the class that replaces the layer of a custom op; errors as in `load_layers`."""
    layer = getattr(layers, CUSTOM_OPS[op].layer)
    try:
        found = named_object(reference(LAYER, name))
    except ModelError as error:
        raise ConfigError(f"layer {name} cannot be loaded", str(error), error.hint) from error
    if not isinstance(found, type):
        raise UsageError(
            f"cannot replace the layer {layer.__name__} by {name}",
            f"it is a {type(found).__name__}, not a class",
            f"write class Mine({layer.__name__}) and name it",
        )
    check_replaces(found, layer)
    return found
