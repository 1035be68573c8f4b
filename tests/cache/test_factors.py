"""Factors are ordered: a heavy one outweighs any number of light ones."""

from __future__ import annotations

from itertools import pairwise

import pytest

from vcc.cache.factors import FACTORS, OTHER, distance, factor_of, ranked
from vcc.cache.key import Difference

ORDER = (
    "model.digest",
    "parallel.tp",
    "model.dtype",
    "host.arch",
    "version.torch",
    "config.mode",
    "model.max_num_seqs",
)
"""From the heaviest to the lightest."""


def differ(*labels: str) -> list[Difference]:
    return [Difference(label, "a", "b") for label in labels]


@pytest.mark.parametrize(("heavy", "light"), list(pairwise(ORDER)))
def test_a_heavier_factor_outweighs_fifty_lighter_ones(heavy: str, light: str) -> None:
    assert distance(differ(heavy)) > 50 * distance(differ(light))


def test_differences_are_ranked_by_weight_and_then_by_label() -> None:
    found = ranked(differ(*reversed(ORDER), "config.backend"))
    labels = [one.label for one in found]
    assert labels == [*ORDER[:5], "config.backend", *ORDER[5:]]
    assert distance(()) == 0


@pytest.mark.parametrize(
    ("label", "group"),
    [
        ("model.digest", "model"),
        ("model.code.shop.net", "model"),
        ("model.dtype", "number format"),
        ("config.capture_sizes", "sizes"),
        ("config.dynamic_shapes.tokens.max", "sizes"),
        ("config.pass_config.eliminate_noops", "configuration"),
        ("target", "target"),
        ("target.profile", "target"),
        ("env.CXX", "environment"),
        ("constant.inv_freq", "constants"),
        ("op.rms_norm", "custom op"),
        ("user_op.rms_norm", "version"),
        ("of.a.later.version", "other"),
    ],
)
def test_every_label_has_a_group(label: str, group: str) -> None:
    assert factor_of(label).group == group


def test_a_label_is_no_prefix_of_another_by_chance() -> None:
    assert factor_of("targeted") is OTHER
    assert factor_of("compilers") is OTHER


def test_no_row_hides_behind_an_earlier_one() -> None:
    assert [one for one in FACTORS if factor_of(one.prefix) is not one] == []
