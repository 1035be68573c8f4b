"""Factors in order of weight: what a difference means for which artifact is nearest.

The weights are a hundredfold apart and no group has so many labels, so light differences never
outweigh a heavier one: this model in another dtype is nearer than another model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vcc.cache.key import Difference

HOST = "host."
"""Prefix of a host rule among the labels of an explanation; no key has it."""


@dataclass(frozen=True, slots=True)
class Factor:
    """A group of labels.

    Args:
        prefix: a label, or the beginning of labels when it ends with a dot.
        group: what it is about, for people.
        weight: how far apart a difference puts two artifacts.
    """

    prefix: str
    group: str
    weight: int


MODEL, LAYOUT, FORM, TARGET, VERSION, CONFIG, SIZES = (10**n for n in range(12, -2, -2))

FACTORS: tuple[Factor, ...] = (
    Factor("model.digest", "model", MODEL),
    Factor("parallel.", "parallel layout", LAYOUT),
    Factor("target.platform", "target", LAYOUT),
    Factor("model.dtype", "number format", FORM),
    Factor("model.quantisation", "number format", FORM),
    Factor("host.torch", "version", VERSION),
    Factor("host.driver", "version", VERSION),
    Factor(HOST, "host", TARGET),
    Factor("target.", "target", TARGET),
    Factor("target", "target", TARGET),
    Factor("version.", "version", VERSION),
    Factor("format.", "version", VERSION),
    Factor("vcc.source", "version", VERSION),
    Factor("pass.", "version", VERSION),
    Factor("user_pass.", "version", VERSION),
    Factor("op.", "custom op", CONFIG),
    Factor("user_op.", "version", VERSION),
    Factor("compiler", "version", VERSION),
    Factor("env.", "environment", VERSION),
    Factor("constant.", "constants", VERSION),
    Factor("model.max_", "sizes", SIZES),
    Factor("model.block_size", "sizes", SIZES),
    Factor("kv.", "sizes", SIZES),
    Factor("config.capture_sizes", "sizes", SIZES),
    Factor("config.compile_sizes", "sizes", SIZES),
    Factor("config.compile_ranges", "sizes", SIZES),
    Factor("config.dynamic_shapes.", "sizes", SIZES),
    Factor("config.", "configuration", CONFIG),
    Factor("inductor.", "configuration", CONFIG),
    Factor("model.", "model", MODEL),
)
"""The first that fits decides."""

OTHER = Factor("", "other", CONFIG)
"""A label of a later version."""


def factor_of(label: str) -> Factor:
    """The factor that a label belongs to."""
    for one in FACTORS:
        if label == one.prefix or (one.prefix[-1] in "._" and label.startswith(one.prefix)):
            return one
    return OTHER


def ranked(differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """Differences with the heaviest first, equal ones in the order of the table, then by label."""
    order = {one: place for place, one in enumerate((*FACTORS, OTHER))}

    def rank(one: Difference) -> tuple[int, int, str]:
        factor = factor_of(one.label)
        return -factor.weight, order[factor], one.label

    return tuple(sorted(differences, key=rank))


def distance(differences: Iterable[Difference]) -> int:
    """How far apart differences put two artifacts; 0 without any."""
    return sum(factor_of(one.label).weight for one in differences)
