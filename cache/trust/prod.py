"""The rules of policy `prod`: what a signature must say, beside being one by a listed key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

import msgspec

from vcc.cache.canonical import FormatError
from vcc.cache.manifest import Manifest
from vcc.cache.trust.keyring import TrustedKey
from vcc.cache.trust.place import TrustPlace, parse
from vcc.cache.trust.statement import Statement

FILE = "prod.json"
MODEL = "model.digest"
_PATTERN = re.compile(r"[^\x00-\x1f\x7f]{1,200}\Z")


class ProdRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What production loads. Every field must be given; `*` stands for any text but none.

    Args:
        builders: names of the builders whose artifacts are loaded.
        source_commits: patterns (`*`, `?`, `[…]`) of the commit that was built from.
        models: patterns of the request's `model.digest`, as `vcc inspect key MODEL` prints it.
        claims: for each claim that must be made, the pattern of its value.
        minimum_epoch: the lowest epoch that is not a rollback.
    """

    builders: tuple[str, ...]
    source_commits: tuple[str, ...]
    models: tuple[str, ...]
    minimum_epoch: int
    claims: Mapping[str, str] = {}


def read_rules(place: TrustPlace) -> tuple[ProdRules, ...]:
    """The rules of both trust folders, all of which must hold.

    Raises:
        FormatError, StorageError, Unsafe: they cannot be known, or there are none.
    """
    found = place.read(FILE, ProdRules)
    if not found:
        raise FormatError(
            "policy prod has no rules",
            f"neither {place.user / FILE} nor {place.system / FILE} is there",
            "docs/security.md shows the file",
        )
    for rules in found:
        _check(rules)
    return found


def parse_rules(data: bytes, what: str) -> ProdRules:
    """The rules in a file that somebody wrote.

    Raises:
        FormatError: it has none that can be used.
    """
    rules = parse(data, ProdRules, what)
    _check(rules)
    return rules


def write_rules(place: TrustPlace, rules: ProdRules) -> str:
    """Make rules those of the user's folder; returns the file's path. Raises as `place.write`."""
    return str(place.write(FILE, rules))


def broken_rule(rules: ProdRules, key: TrustedKey, statement: Statement, manifest: Manifest) -> str:
    """The first rule that a signed artifact breaks, for people; empty when all hold.

    Args:
        rules: what must hold.
        key: whose signature it is, already verified.
        statement: what it says.
        manifest: of the artifact.
    """
    model = dict(manifest.request).get(MODEL, "")
    if not statement.builder or statement.builder not in rules.builders:
        return f"builder {statement.builder!r} is none of {_listed(rules.builders)}"
    if statement.builder not in key.builders:
        return f"key {key.name} may not speak for builder {statement.builder!r}"
    if not _fits(statement.source_commit, rules.source_commits):
        return f"source commit {statement.source_commit or 'unknown'} is not one that is allowed"
    if not _fits(model, rules.models):
        return f"model {model[:12] or 'unknown'} is not one that is allowed"
    if statement.epoch < rules.minimum_epoch:
        return f"epoch {statement.epoch} is before {rules.minimum_epoch}"
    return _broken_claim(rules, statement)


def _broken_claim(rules: ProdRules, statement: Statement) -> str:
    for label, pattern in sorted(rules.claims.items()):
        said = statement.claims.get(label, "")
        if not _fits(said, (pattern,)):
            return f"claim {label} is {said!r}, {pattern!r} is wanted"
    return ""


def _fits(text: str, patterns: tuple[str, ...]) -> bool:
    return bool(text) and any(fnmatchcase(text, pattern) for pattern in patterns)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def _check(rules: ProdRules) -> None:
    lists = {
        "builders": rules.builders,
        "source_commits": rules.source_commits,
        "models": rules.models,
    }
    empty = next((name for name, values in lists.items() if not values), None)
    if empty is not None:
        raise FormatError(f"{FILE} admits nothing", f"{empty} is empty")
    texts = [text for values in (*lists.values(), rules.claims.values()) for text in values]
    bad = next((text for text in texts if not _PATTERN.match(text)), None)
    if bad is not None:
        raise FormatError(f"{FILE} has a pattern that fits nothing", repr(bad)[:80])
    if rules.minimum_epoch < 0:
        raise FormatError(f"{FILE} has a negative minimum_epoch")
