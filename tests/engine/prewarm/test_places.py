"""Every key of a TOML text has its line and column."""

from __future__ import annotations

import sys

import pytest

from vcc.engine.prewarm.places import DEEPEST, Place, place_of, places

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TEXT = '''\
# [not.a.table] key = 1
title = "a # b = [c]"
[a.b]
"quoted key" = 1 # [x]
dotted . inner = """
[not] = here \\"""
"""
  raw = \'\'\'it's
[no]\'\'\'
list = [ "x", # ]
  [1, 2],
  { in = 1, "of" = [ 3 ] },
]
[[c]]
n = 1
[[c.d]]
m = 1979-05-27 07:32:00
[[c.d]]
m = -1e5
[c.e]
k = true
[[c]]
n = 2
[[c.d]]
m = {}
'''

FOUND = {
    ("title",): (2, 1),
    ("a", "b"): (3, 1),
    ("a", "b", "quoted key"): (4, 1),
    ("a", "b", "dotted"): (5, 1),
    ("a", "b", "dotted", "inner"): (5, 1),
    ("a", "b", "raw"): (8, 3),
    ("a", "b", "list"): (10, 1),
    ("a", "b", "list", 0): (10, 10),
    ("a", "b", "list", 1): (11, 3),
    ("a", "b", "list", 1, 0): (11, 4),
    ("a", "b", "list", 1, 1): (11, 7),
    ("a", "b", "list", 2): (12, 3),
    ("a", "b", "list", 2, "in"): (12, 5),
    ("a", "b", "list", 2, "of"): (12, 13),
    ("a", "b", "list", 2, "of", 0): (12, 22),
    ("c", 0): (14, 1),
    ("c", 0, "n"): (15, 1),
    ("c", 0, "d", 0): (16, 1),
    ("c", 0, "d", 0, "m"): (17, 1),
    ("c", 0, "d", 1): (18, 1),
    ("c", 0, "d", 1, "m"): (19, 1),
    ("c", 0, "e"): (20, 1),
    ("c", 0, "e", "k"): (21, 1),
    ("c", 1): (22, 1),
    ("c", 1, "n"): (23, 1),
    ("c", 1, "d", 0): (24, 1),
    ("c", 1, "d", 0, "m"): (25, 1),
}


def test_all_keys_and_elements_are_found_where_they_stand():
    tomllib.loads(TEXT)  # it is what a parser takes
    assert places(TEXT) == {path: Place(*at) for path, at in FOUND.items()}


def test_values_inside_each_other_have_a_bound():
    with pytest.raises(RecursionError):
        places(f"a = {'[' * (DEEPEST + 2)}{']' * (DEEPEST + 2)}")


def test_columns_count_characters():
    assert place_of("äö\nüx", 4) == Place(2, 2)
