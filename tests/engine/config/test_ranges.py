"""Ranges of tokens that passes ask for, on every platform."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vcc.engine.config.levels import PassRule
from vcc.engine.config.modes import Platform
from vcc.engine.config.resolve import PlatformFacts, resolve
from vcc.engine.config.types import CompilationConfig, PassConfig


@pytest.mark.parametrize("platform", Platform)
def test_a_pass_that_may_run_asks_for_the_end_of_its_gate(platform: Platform) -> None:
    """F7; one whose operator nothing implements yet is skipped at every size and asks for none."""
    rule = PassRule("fuse_norm_linear", None, range_ends=(512,))
    asked = CompilationConfig(pass_config=PassConfig(fuse_norm_linear=True))
    known = PlatformFacts(platform, 128, 2048)
    for missing, ends in (("", (512,)), ("vcc::nowhere", ())):
        found = resolve(asked, known, (replace(rule, missing_op=missing),))
        assert found.config.compile_ranges == ends
    told = resolve(asked, known, (rule,)).why("compile_ranges")
    assert told == ("a gate opens or closes: pass fuse_norm_linear at 512",)


@pytest.mark.parametrize("platform", Platform)
def test_a_sum_over_ranks_that_is_switched_on_asks_for_no_range(platform: Platform) -> None:
    asked = CompilationConfig(pass_config=PassConfig(fuse_all_reduce_norm=True))
    found = resolve(asked, PlatformFacts(platform, 128, 2048)).config
    assert found.pass_config.fuse_all_reduce_norm is True
    assert found.compile_ranges == ()
