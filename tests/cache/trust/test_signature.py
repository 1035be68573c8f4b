"""Signatures hold for their own bytes, artifact and key, and for nothing else."""

from __future__ import annotations

import os

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from support.stores import flipped
from support.trusting import MAIN

from vcc.cache import canonical
from vcc.cache.digest import Digest
from vcc.cache.errors import IntegrityError, UsageError
from vcc.cache.root import opened
from vcc.cache.trust.secretkey import SecretKey
from vcc.cache.trust.signature import (
    MAX_SIGNATURES,
    BadSignature,
    Terms,
    sign,
    signature_files,
    signatures,
    verify,
)
from vcc.cache.trust.statement import MAX_STATEMENT

ARTIFACT = Digest.of(b"an artifact")


@pytest.fixture(scope="module")
def statement(key):
    return sign(key, ARTIFACT, MAIN, now=1_700_000_000)


def test_a_signature_verifies_and_gives_its_statement(key, statement):
    assert verify(statement.encode(), ARTIFACT, key.public) == statement
    assert (statement.builder, statement.epoch, statement.expires_at) == ("ci-main", 7, 0)


def test_the_signature_is_plain_ed25519_over_the_documented_bytes(key, statement):
    """Another implementation needs no more than docs/format.md to check one."""
    fields = msgspec.to_builtins(statement)
    signature = bytes.fromhex(fields.pop("signature"))
    signed = b"vcc-signature 1\n" + canonical.encode(fields, "statement")
    public = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.public))
    public.verify(signature, signed)


def test_every_flipped_bit_is_refused(key, statement):
    data = statement.encode()
    for offset in range(len(data)):
        with pytest.raises(IntegrityError):
            verify(flipped(data, offset, offset % 8), ARTIFACT, key.public)


CHANGES = {
    "artifact": Digest.of(b"other").hex,
    "builder": "ci-other",
    "source_commit": "f" * 40,
    "claims": {"ref": "refs/heads/evil"},
    "epoch": 8,
    "signed_at": 1,
    "expires_at": 1 << 40,
}


@pytest.mark.parametrize("field", CHANGES)
def test_no_field_can_be_changed_afterwards(key, statement, field):
    fields = {**msgspec.to_builtins(statement), field: CHANGES[field]}
    data = canonical.encode(fields, "statement")
    with pytest.raises(BadSignature):
        verify(data, ARTIFACT if field != "artifact" else Digest(CHANGES[field]), key.public)


def test_a_signature_over_another_artifact_is_refused(key, statement):
    with pytest.raises(BadSignature, match="over another artifact"):
        verify(statement.encode(), Digest.of(b"other"), key.public)


def test_a_signature_under_another_keys_name_is_refused(key, other, statement):
    with pytest.raises(BadSignature, match="names another key"):
        verify(statement.encode(), ARTIFACT, other.public)
    fields = {**msgspec.to_builtins(statement), "key": other.public}
    with pytest.raises(BadSignature, match="not made by its key"):
        verify(canonical.encode(fields, "statement"), ARTIFACT, other.public)


def test_bytes_signed_for_another_purpose_are_refused(key, statement):
    """Without the domain the same key could be made to sign an artifact by other software."""
    fields = msgspec.to_builtins(statement)
    del fields["signature"]
    raw = key.sign(canonical.encode(fields, "statement"))
    data = canonical.encode({**fields, "signature": raw.hex()}, "statement")
    with pytest.raises(BadSignature):
        verify(data, ARTIFACT, key.public)


def test_a_forgery_under_a_key_of_small_order_is_refused(statement):
    neutral = "01" + "00" * 31
    fields = {**msgspec.to_builtins(statement), "key": neutral}
    fields["signature"] = neutral + "00" * 32
    data = canonical.encode(fields, "statement")
    with pytest.raises(BadSignature):
        verify(data, ARTIFACT, neutral)


def test_a_second_form_of_the_same_signature_is_refused(key, statement):
    """s + L would hold too if it were not bounded (RFC 8032, 5.1.7)."""
    order = 2**252 + 27742317777372353535851937790883648493
    raw = bytes.fromhex(statement.signature)
    high = int.from_bytes(raw[32:], "little") + order
    fields = msgspec.to_builtins(statement)
    fields["signature"] = raw[:32].hex() + high.to_bytes(32, "little").hex()
    with pytest.raises(BadSignature):
        verify(canonical.encode(fields, "statement"), ARTIFACT, key.public)


def test_terms_that_no_reader_takes_are_not_signed(key):
    for terms in (
        Terms(source_commit="main"),
        Terms(builder="b" * 300),
        Terms(epoch=-1),
        Terms(claims={"bad label": ""}),
    ):
        with pytest.raises(UsageError):
            sign(key, ARTIFACT, terms)


def test_a_lifetime_is_counted_from_the_signers_clock(key):
    made = sign(key, ARTIFACT, Terms(lifetime_s=90), now=1000.9)
    assert (made.signed_at, made.expires_at) == (1000, 1090)
    assert sign(key, ARTIFACT, Terms(), now=-5.0).signed_at == 0


def test_signature_files_are_read_capped_and_only_by_the_name_of_a_key(site, key):
    site.sign(key)
    folder = site.root / "v1/signatures" / site.entry.artifact
    (folder / "README").write_text("not a signature")
    (folder / ("ab" * 32)).write_bytes(b"x" * (MAX_STATEMENT + 1))
    os.mkfifo(folder / ("cd" * 32))
    (folder / ("ef" * 32)).symlink_to("/etc/passwd")
    with opened(site.root, create=False) as store:
        found = signature_files(store, site.entry.artifact)
        assert signatures(store, site.entry.artifact) == tuple(found.values())
        assert signatures(store, "0" * 64) == ()
    assert list(found) == [key.public]


def test_many_files_are_capped(site):
    for number in range(MAX_SIGNATURES + 9):
        site.put(f"{number:064x}", b"x")
    with opened(site.root, create=False) as store:
        assert len(signatures(store, site.entry.artifact)) == MAX_SIGNATURES


def test_signing_again_replaces_the_older_signature(site, key):
    site.sign(key, Terms(epoch=1))
    site.sign(key, Terms(epoch=2))
    with opened(site.root, create=False) as store:
        (data,) = signatures(store, site.entry.artifact)
    assert verify(data, site.entry.id, key.public).epoch == 2
    assert list((site.root / "v1/tmp").iterdir()) == []


def test_two_keys_sign_one_artifact(site, key, other):
    site.sign(key)
    site.sign(other)
    with opened(site.root, create=False) as store:
        assert set(signature_files(store, site.entry.artifact)) == {key.public, other.public}


def test_signing_is_repeatable(key):
    first, second = (sign(key, ARTIFACT, MAIN, now=1.0) for _ in range(2))
    assert first == second
    assert SecretKey.parse(key.pem(), "k").sign(b"x") == key.sign(b"x")
