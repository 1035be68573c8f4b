"""What of a request makes GPU code another: the device, the KV cache's layout; and refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.cuda_child import SM_90
from support.flow import ask

from vcc.cache.errors import ConfigError
from vcc.engine.compile.gpu import device_profile
from vcc.engine.compile.keys import code_entries
from vcc.engine.models.shapes import parse_shapes
from vcc.engine.request import BuildRequest, settle


def code(request: BuildRequest) -> dict[str, str]:
    return code_entries(settle(request), None)


def changed(one: BuildRequest, other: BuildRequest) -> set[str]:
    left, right = code(one), code(other)
    return {name for name in left.keys() | right.keys() if left.get(name) != right.get(name)}


def test_another_device_makes_other_code() -> None:
    asked = ask("demo", target="sm_90")
    assert changed(asked, replace(asked, profile=replace(SM_90, sm_count=78))) == {"target.profile"}
    assert changed(asked, ask("demo", target="sm_90:114")) == {"target", "target.profile"}


def test_the_block_size_of_the_cache_is_compiled_in() -> None:
    asked = ask("demo", target="sm_90")
    other = replace(asked, model=replace(asked.model, block_size=32))
    assert changed(asked, other) == {"kv.block_size"}
    on_cpu = replace(asked, target=ask("demo").target), replace(other, target=ask("demo").target)
    assert changed(*on_cpu) == set()


def test_the_sizes_of_graphs_are_chosen_at_load() -> None:
    assert changed(ask("demo", target="sm_90"), ask("demo", target="sm_90", shapes="1,2")) == set()


def test_no_compiler_of_the_host_enters_the_key() -> None:
    assert not {"compiler", "env.CXX"} & code(ask("demo", target="sm_90")).keys()


def test_a_forward_of_more_sizes_than_a_table_has_is_refused_by_name() -> None:
    asked = ask("demo", target="sm_90")
    shapes = parse_shapes(["x=A@1-4xB@1-8x16", "y=A@1-4x1-9"])
    source = replace(asked.source, kind="module", name="m:make", shapes=shapes)
    settled = settle(asked)
    with pytest.raises(ConfigError, match="m:make cannot be compiled for sm_90") as caught:
        device_profile(replace(settled, request=replace(asked, source=source)))
    assert "A, B, dimension 1 of y" in caught.value.why
    two = replace(asked, source=replace(source, shapes=shapes[:1]))
    assert device_profile(replace(settled, request=two)).target == "sm_90"
