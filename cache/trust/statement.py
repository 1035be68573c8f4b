"""Statements: what a signer says of an artifact, and the bytes that are signed.

    file    = canonical JSON of Statement                 at most 16 KiB
    signed  = "vcc-signature 1" LF *byte                  canonical JSON without "signature"

There is one algorithm, ed25519, and no field that names it: nothing can be talked down. A field
that is not known may be a condition that was meant to hold, so it is refused and not passed over.
"""

from __future__ import annotations

import re

import msgspec

from vcc.cache import canonical
from vcc.cache.canonical import MAX_INT, FormatError
from vcc.cache.digest import is_digest
from vcc.cache.trust.publickey import KEY_HEX

DOMAIN = b"vcc-signature 1\n"
VERSION = "1.0"
MAX_STATEMENT = 1 << 14
MAX_TEXT, MAX_CLAIMS = 200, 16

_SIGNATURE = re.compile(r"[0-9a-f]{128}\Z")
_COMMIT = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64})?\Z")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z")


class Statement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signed statement about one artifact.

    Args:
        artifact: the artifact's id: SHA-256 of its manifest, hex.
        key: the public key of the signer, hex.
        builder: the name under which the signer builds; may be empty.
        source_commit: full hash of the commit that it was built from; may be empty.
        claims: more that the signer says, such as repository, ref, model revision.
        epoch: a number that only grows; a reader can ask for a lowest one.
        signed_at: seconds since 1970.
        expires_at: seconds since 1970; 0 for never.
        format_version: "1.0".
        signature: 64 bytes over the rest, hex.
    """

    artifact: str
    key: str
    builder: str
    source_commit: str
    claims: dict[str, str]
    epoch: int
    signed_at: int
    expires_at: int
    format_version: str
    signature: str

    def signed_bytes(self) -> bytes:
        """What the signature is over."""
        fields = msgspec.to_builtins(self)
        del fields["signature"]
        return DOMAIN + canonical.encode(fields, "signature")

    def encode(self) -> bytes:
        """The file's bytes.

        Raises:
            FormatError: a field breaks a rule.
        """
        check(self)
        data = canonical.encode(msgspec.to_builtins(self), "signature")
        if len(data) > MAX_STATEMENT:
            raise FormatError("the signature is too large", f"{len(data)} bytes of text")
        return data

    @classmethod
    def decode(cls, data: bytes) -> Statement:
        """Read a statement from untrusted bytes; whether its signature holds is not known yet.

        Raises:
            FormatError: it is none.
        """
        if len(data) > MAX_STATEMENT:
            raise FormatError("the signature is too large", f"more than {MAX_STATEMENT} bytes")
        try:
            statement = msgspec.convert(canonical.decode(data, "signature"), cls)
        except msgspec.ValidationError as error:
            raise FormatError("the signature has a wrong field", str(error)) from error
        check(statement)
        return statement


def check(statement: Statement) -> None:
    """Refuse fields that are malformed or over a cap; raises FormatError."""
    numbers = (statement.epoch, statement.signed_at, statement.expires_at)
    texts = (statement.builder, *statement.claims.values())
    rules = (
        (statement.format_version == VERSION, f"format {statement.format_version[:20]!r}"),
        (is_digest(statement.artifact), "the artifact's id"),
        (KEY_HEX.match(statement.key), "the key"),
        (_SIGNATURE.match(statement.signature), "the signature itself"),
        (_COMMIT.match(statement.source_commit), "the source commit (40 or 64 hex digits)"),
        (all(0 <= number <= MAX_INT for number in numbers), "a number"),
        (len(statement.claims) <= MAX_CLAIMS, f"the number of claims (at most {MAX_CLAIMS})"),
        (all(map(_LABEL.match, statement.claims)), "the name of a claim"),
        (all(len(text) <= MAX_TEXT for text in texts), f"a text (at most {MAX_TEXT} characters)"),
    )
    wrong = next((what for good, what in rules if not good), None)
    if wrong is not None:
        raise FormatError("the signature has a malformed field", wrong)
