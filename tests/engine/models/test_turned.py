"""Bindings of turned weights in a manifest that somebody else may have written."""

from __future__ import annotations

from typing import Any

import pytest

from vcc.cache.errors import IntegrityError
from vcc.cache.manifest import Manifest
from vcc.engine.models.expressions import ChannelsLast, Tied
from vcc.engine.models.turned import parameter_of, turned_of


def manifest(info: dict[str, Any]) -> Manifest:
    return Manifest(request=(), open_fields=(), code_key=(), host_rules={}, title="", info=info)


def test_each_is_the_parameter_with_its_channels_last() -> None:
    found = turned_of(manifest({"turned": {"a.channels_last": 'channels_last(tied("a"))'}}))
    assert found == {"a.channels_last": ChannelsLast(Tied("a"))}
    assert parameter_of(found["a.channels_last"]) == "a"


def test_an_artifact_of_an_earlier_build_has_none() -> None:
    assert turned_of(manifest({"bindings": {"a": 'tensor("a")'}})) == {}


@pytest.mark.parametrize(
    "told",
    [
        [],
        "channels_last",
        None,
        {"a": 1},
        {"a": "channels_last("},
        {"a": 'tied("b")'},
        {"a": 'channels_last(tensor("b"))'},
        {"a": 'channels_last(channels_last(tied("b")))'},
        {"a": 'channels_last(rows(tied("b"), 0:1))'},
    ],
)
def test_anything_else_is_refused_with_what_why_and_hint(told: Any) -> None:
    with pytest.raises(IntegrityError) as refused:
        turned_of(manifest({"turned": told}))
    assert all((refused.value.what, refused.value.why, refused.value.hint))
