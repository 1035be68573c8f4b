"""Names of operators in every spelling that people use."""

from __future__ import annotations

import pytest

from vcc.cache.errors import ConfigError
from vcc.engine.config.op_names import named_in, op_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("vcc::kv_write", "vcc::kv_write"),
        ("vcc.kv_write", "vcc::kv_write"),
        ("torch.ops.vcc.kv_write", "vcc::kv_write"),
        ("torch.ops.aten.add.Tensor", "aten::add.Tensor"),
        ("aten.add.Tensor", "aten::add.Tensor"),
        ("aten::add.Tensor", "aten::add.Tensor"),
        ("aten::gelu.default", "aten::gelu.default"),
    ],
)
def test_spellings_of_one_operator(text: str, name: str) -> None:
    assert op_name(text) == name
    assert op_name(name) == name


@pytest.mark.parametrize(
    "text", ["gelu", "aten::", "::gelu", "a.b.c.d", "aten::add Tensor", "a::b::c"]
)
def test_what_names_no_operator_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no name of an operator"):
        op_name(text)


def test_a_bare_name_matches_every_overload() -> None:
    assert named_in("aten::add.Tensor", {"aten::add"})
    assert named_in("aten::add.Tensor", {"aten::add.Tensor"})
    assert not named_in("aten::add.Tensor", {"aten::add.Scalar"})
    assert named_in("aten::gelu", {"aten::gelu.default"})
