"""Weights of a table that lie otherwise than the module has them. Torch-free.

`info.turned` of a manifest has their bindings, by the names that the table has of them:

    turned := { name: "channels_last(tied(parameter))" }
"""

from __future__ import annotations

from collections.abc import Mapping

from vcc.cache.errors import IntegrityError
from vcc.cache.manifest import Manifest
from vcc.engine.models.expression_text import parse
from vcc.engine.models.expressions import ChannelsLast, Tied

TURNED = "turned"


def turned_of(manifest: Manifest) -> Mapping[str, ChannelsLast]:
    """The bindings of an artifact's turned weights, by name; none in those of earlier builds.

    Raises:
        IntegrityError: they are no such expressions.
    """
    told = manifest.info.get(TURNED, {})
    if not isinstance(told, Mapping):
        raise _refused(f"they are {told!r:.60}")
    return {str(name): _turned(str(name), text) for name, text in told.items()}


def parameter_of(binding: ChannelsLast) -> str:
    """The parameter that is turned."""
    source = binding.source
    if not isinstance(source, Tied):
        raise _refused(f"{str(binding)[:80]} is of no parameter")
    return source.name


def _turned(name: str, text: object) -> ChannelsLast:
    if not isinstance(text, str):
        raise _refused(f"that of {name[:60]} is no text")
    binding = parse(text)
    if not isinstance(binding, ChannelsLast):
        raise _refused(f"that of {name[:60]} is {text[:80]}")
    parameter_of(binding)
    return binding


def _refused(why: str) -> IntegrityError:
    return IntegrityError(
        "the bindings of an artifact's turned weights are refused",
        why,
        "build the artifact anew: vcc compile",
    )
