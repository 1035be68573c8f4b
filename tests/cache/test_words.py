"""One of a thing is no plural."""

from __future__ import annotations

import pytest

from vcc.cache.words import amount


@pytest.mark.parametrize(
    ("count", "plural", "text"),
    [
        (0, "tables", "0 tables"),
        (1, "tables", "1 table"),
        (2, "tables", "2 tables"),
        (1, "pieces", "1 piece"),
        (1, "launches", "1 launch"),
        (11, "launches", "11 launches"),
    ],
)
def test_one_is_singular(count: int, plural: str, text: str) -> None:
    assert amount(count, plural) == text
