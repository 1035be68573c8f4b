"""Long lists: the ends and the count, and nothing else is touched."""

from __future__ import annotations

import json

import pytest

from vcc.engine.listed import ENDS, MOST, few, list_text, listed


def test_a_list_is_shown_whole_up_to_the_bound() -> None:
    names = [str(number) for number in range(MOST)]
    assert few(names, "…") == names
    assert listed(names) == ", ".join(names)
    assert list_text(json.dumps(names)) == json.dumps(names)


def test_of_a_longer_one_the_ends_are_left() -> None:
    names = [str(number) for number in range(MOST + 1)]
    assert few(names, "…") == [*names[:ENDS], "…", *names[-ENDS:]]
    assert listed(names) == "0, 1, 2, 3 … 37, 38, 39, 40"
    assert list_text(json.dumps([*range(300)])) == "[0,1,2,3 … 296,297,298,299] (300 in all)"
    assert list_text(json.dumps(["ä"] * 50)).startswith('["ä","ä"')


@pytest.mark.parametrize(
    "text", ["", "[]", "plain", '{"a":[1,2]}', "[" * 5000 + "]" * 5000, "[1," + "x" * 90 + "]"]
)
def test_what_is_no_list_stays_as_it_is(text: str) -> None:
    assert list_text(text) == text
