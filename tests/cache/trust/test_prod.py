"""The rules of production: each can fail, none may be left out."""

from __future__ import annotations

import msgspec
import pytest
from support.stores import manifest_of
from support.trusting import COMMIT, RULES

from vcc.cache.canonical import FormatError
from vcc.cache.trust.keyring import TrustedKey
from vcc.cache.trust.place import TrustPlace
from vcc.cache.trust.prod import FILE, broken_rule, read_rules
from vcc.cache.trust.statement import Statement

KEY = TrustedKey(key="ab" * 32, name="main", builders=("ci-main",))
SAID = Statement(
    artifact="cd" * 32,
    key=KEY.key,
    builder="ci-main",
    source_commit=COMMIT,
    claims={"ref": "refs/heads/main", "more": "free"},
    epoch=5,
    signed_at=0,
    expires_at=0,
    format_version="1.0",
    signature="00" * 64,
)
MANIFEST = manifest_of()


def broken(rules=RULES, key=KEY, **changes) -> str:
    return broken_rule(rules, key, msgspec.structs.replace(SAID, **changes), MANIFEST)


def with_rules(**changes):
    return msgspec.structs.replace(RULES, **changes)


def test_a_statement_that_says_all_of_it_passes():
    assert broken() == ""


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"builder": ""}, "builder ''"),
        ({"builder": "ci-pr"}, "builder 'ci-pr' is none of ci-main"),
        ({"source_commit": ""}, "source commit unknown"),
        ({"source_commit": "f" * 40}, "source commit ffff"),
        ({"epoch": 4}, "epoch 4 is before 5"),
        ({"claims": {}}, "claim ref is ''"),
        ({"claims": {"ref": "refs/pull/1/merge"}}, "claim ref is 'refs/pull/1/merge'"),
        ({"claims": {"ref": "xrefs/heads/main"}}, "claim ref"),
    ],
)
def test_each_part_of_a_statement_can_fail(changes, why):
    assert broken(**changes).startswith(why)


def test_a_key_speaks_for_its_own_builders_only():
    for builders in ((), ("ci-pr",)):
        key = msgspec.structs.replace(KEY, builders=builders)
        assert "may not speak for builder 'ci-main'" in broken(key=key)


def test_the_model_must_be_one_of_the_listed():
    assert "model abababababab" in broken(with_rules(models=("cd" * 32,)))
    assert broken(with_rules(models=("cd" * 32, "abab*"))) == ""


def test_a_star_stands_for_anything_but_nothing():
    rules = with_rules(source_commits=("*",), models=("*",))
    assert broken(rules, source_commit="f" * 40) == ""
    assert "source commit unknown" in broken(rules, source_commit="")


def test_rules_must_be_there(place):
    with pytest.raises(FormatError, match="no rules"):
        read_rules(place)


def test_the_rules_of_both_folders_hold(place):
    place.write(FILE, RULES)
    TrustPlace(place.system, place.system, True).write(FILE, with_rules(minimum_epoch=9))
    assert [rules.minimum_epoch for rules in read_rules(place)] == [5, 9]


@pytest.mark.parametrize(
    "changes",
    [
        {"builders": ()},
        {"source_commits": ()},
        {"models": ()},
        {"models": ("",)},
        {"claims": {"ref": ""}},
        {"claims": {"ref": "a\nb"}},
        {"minimum_epoch": -1},
    ],
    ids=str,
)
def test_rules_that_admit_nothing_are_an_error(place, changes):
    place.write(FILE, with_rules(**changes))
    with pytest.raises(FormatError):
        read_rules(place)


@pytest.mark.parametrize("field", ["builders", "source_commits", "models", "minimum_epoch"])
def test_no_rule_may_be_left_out(place, field):
    fields = msgspec.to_builtins(RULES)
    del fields[field]
    place.write(FILE, fields)
    with pytest.raises(FormatError, match=f"`{field}`"):
        read_rules(place)
