"""The compiler's flags depend on the target, not on the building machine or its torch."""

from __future__ import annotations

import pytest

pytest.importorskip("torch._inductor.cpp_builder")

from torch._inductor import cpp_builder

from vcc.engine.torch_shim.inductor import _fixed_flags


def test_code_for_the_building_machine_becomes_code_for_the_target(monkeypatch) -> None:
    """As in torch 2.11 and 2.12, which know no option for it."""
    flags = (["O3", "march=native", "fno-tree-loop-vectorize"], ["ldflag"])
    monkeypatch.setattr(cpp_builder, "_get_optimization_cflags", lambda *_: flags)
    with _fixed_flags("x86-64-v3"):
        cflags, ldflags = cpp_builder._get_optimization_cflags("c++", False)
    assert cflags[:3] == ["O3", "march=x86-64-v3", "fno-tree-loop-vectorize"]
    assert cflags[3].startswith("ffile-prefix-map=")
    assert ldflags == ["ldflag"]


def test_the_flags_are_put_back() -> None:
    before = cpp_builder._get_optimization_cflags
    with pytest.raises(KeyError), _fixed_flags("x86-64-v3"):
        raise KeyError
    assert cpp_builder._get_optimization_cflags is before
