"""Statements: one text each, strict fields, and no way to name another algorithm."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.trusting import MAIN

from vcc.cache import canonical
from vcc.cache.canonical import FormatError
from vcc.cache.digest import Digest
from vcc.cache.trust.secretkey import SecretKey
from vcc.cache.trust.signature import sign
from vcc.cache.trust.statement import DOMAIN, MAX_STATEMENT, Statement

ARTIFACT = Digest.of(b"an artifact")
GOOD = sign(SecretKey.new(), ARTIFACT, MAIN, now=1_700_000_000)


def changed(**fields: object) -> bytes:
    return canonical.encode({**msgspec.to_builtins(GOOD), **fields}, "statement")


def test_a_statement_reads_back():
    assert Statement.decode(GOOD.encode()) == GOOD
    assert GOOD.encode() == changed()


def test_what_is_signed_has_a_domain_of_its_own_and_every_field_but_the_signature():
    text = GOOD.signed_bytes()
    assert text.startswith(DOMAIN)
    fields = canonical.decode(text.removeprefix(DOMAIN), "statement")
    assert fields == {n: v for n, v in msgspec.to_builtins(GOOD).items() if n != "signature"}


BAD = {
    "algorithm": changed(algorithm="none"),
    "alg": changed(alg="HS256"),
    "condition of a later version": changed(only_on="host"),
    "later format": changed(format_version="1.1"),
    "other major": changed(format_version="2.0"),
    "artifact": changed(artifact="ab"),
    "artifact in capitals": changed(artifact=ARTIFACT.hex.upper()),
    "short key": changed(key="ab" * 31),
    "long key": changed(key="ab" * 57),
    "short signature": changed(signature="ab" * 63),
    "long signature": changed(signature="ab" * 114),
    "empty signature": changed(signature=""),
    "short commit": changed(source_commit="abc"),
    "no commit": changed(source_commit="refs/heads/main"),
    "negative epoch": changed(epoch=-1),
    "negative time": changed(signed_at=-1),
    "text for a number": changed(epoch="7"),
    "true for a number": changed(epoch=True),
    "float for a number": changed(expires_at=1.5),
    "null": changed(builder=None),
    "long builder": changed(builder="b" * 201),
    "17 claims": changed(claims={f"c{n}": "" for n in range(17)}),
    "long claim": changed(claims={"c": "v" * 201}),
    "name of a claim": changed(claims={"a b": "v"}),
    "list of claims": changed(claims=["ref"]),
    "missing field": canonical.encode(
        {n: v for n, v in msgspec.to_builtins(GOOD).items() if n != "epoch"}, "statement"
    ),
    "not canonical": GOOD.encode().replace(b'{"artifact"', b'{ "artifact"'),
    "repeated field": GOOD.encode().replace(b'{"artifact"', b'{"artifact":"","artifact"'),
    "list": b"[]",
    "empty": b"",
    "depth bomb": b"[" * 5000 + b"]" * 5000,
    "huge": b'"' + b"a" * MAX_STATEMENT + b'"',
}


@pytest.mark.parametrize("name", BAD)
def test_a_statement_that_breaks_a_rule_is_refused(name):
    with pytest.raises(FormatError):
        Statement.decode(BAD[name])


@given(st.binary(max_size=300))
def test_any_bytes_are_a_statement_or_a_format_error(data):
    with pytest.raises(FormatError):
        Statement.decode(data)
