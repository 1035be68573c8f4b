"""The compiler's flags depend on the target, not on the building machine or its torch."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch._inductor import cpp_builder

from vcc.engine.torch_shim.inductor import NO_EXECUTABLE_STACK, _fixed_flags


def compiler(folder: Path, answer: str) -> str:
    """A compiler driver that gives one answer to every question."""
    script = folder / "c++"
    script.write_text(f"#!/bin/sh\necho {answer}\n")
    script.chmod(0o755)
    return str(script)


def flags_with(path: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """What torch 2.11 gives, which knows no option for the target, as vcc hands it on."""
    plain = (["O3", "march=native", "fno-tree-loop-vectorize"], ["ldflag"])
    monkeypatch.setattr(cpp_builder, "_get_optimization_cflags", lambda *_: plain)
    with _fixed_flags("x86-64-v3"):
        return cpp_builder._get_optimization_cflags(path, False)


def test_code_for_the_building_machine_becomes_code_for_the_target(tmp_path, monkeypatch) -> None:
    cflags, ldflags = flags_with(compiler(tmp_path, "/usr/lib/libstdc++.so"), monkeypatch)
    assert cflags[:3] == ["O3", "march=x86-64-v3", "fno-tree-loop-vectorize"]
    assert cflags[3].startswith("ffile-prefix-map=")
    assert ldflags == ["ldflag", NO_EXECUTABLE_STACK]


def test_a_toolchain_with_a_static_cxx_library_only_links_the_shared_one(
    tmp_path, monkeypatch
) -> None:
    """Its driver gives the bare name back; torch must be able to catch what a piece throws."""
    _, ldflags = flags_with(compiler(tmp_path, "libstdc++.so"), monkeypatch)
    assert ldflags[0] == "ldflag"
    assert "-l:libstdc++.so.6" in ldflags[1]


def test_the_flags_are_put_back() -> None:
    before = cpp_builder._get_optimization_cflags
    with pytest.raises(KeyError), _fixed_flags("x86-64-v3"):
        raise KeyError
    assert cpp_builder._get_optimization_cflags is before
