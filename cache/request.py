"""Requests and refs: what a user asks for, and the small file that answers without the manifest.

A request is a *base* that every look-up states in full (model, quantisation) and *open* fields
that a look-up may leave out, which then match anything (mode, sizes). The folder of refs is named
by the digest of the base, the file by the artifact's id:

    refs/<base digest>/<artifact id>
    file   = record LF sum LF
    record = canonical JSON of Entry plus "format_version"
    sum    = SHA-256 of record, 64 hex digits      ; a changed bit is seen before the record is read
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from vcc.cache import canonical
from vcc.cache.canonical import MAX_INT, FormatError
from vcc.cache.digest import Digest, is_digest
from vcc.cache.key import Difference, Key, Pairs
from vcc.cache.manifest import FORMAT_VERSION, Manifest, check_pairs, check_version


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One artifact as its ref tells it.

    Args:
        artifact: the artifact's id: SHA-256 of its manifest, hex.
        request: all request fields, sorted pairs.
        open_fields: labels of `request` that a look-up may leave open.
        host_rules: what must hold on the loading host, sorted pairs.
        created: seconds since 1970.
        size: bytes of all blobs.
        title: what it is, for people.
        build_ms: milliseconds that the build took, 0 where nobody knows.
        settled: fields of `request` that came out otherwise, sorted pairs: for lists. A look-up
            goes by what was asked for.
    """

    artifact: str
    request: Pairs
    open_fields: tuple[str, ...]
    host_rules: Pairs
    created: int
    size: int
    title: str
    build_ms: int = 0
    settled: Pairs = ()

    @classmethod
    def of(cls, manifest: Manifest, artifact: Digest) -> Entry:
        """The entry of a manifest whose digest is `artifact`."""
        return cls(
            artifact=artifact.hex,
            request=manifest.request,
            open_fields=manifest.open_fields,
            host_rules=tuple(sorted(manifest.host_rules.items())),
            created=manifest.created,
            size=manifest.size,
            title=manifest.title,
            build_ms=manifest.build_ms,
            settled=_settled(manifest),
        )

    @property
    def id(self) -> Digest:
        """The artifact's id as a value."""
        return Digest(self.artifact)

    @property
    def fields(self) -> dict[str, str]:
        """The request fields as a mapping."""
        return dict(self.request)

    @property
    def base(self) -> Key:
        """The part of the request that every look-up states."""
        return Key(tuple(pair for pair in self.request if pair[0] not in self.open_fields))

    def differences(self, wanted: Mapping[str, str]) -> tuple[Difference, ...]:
        """Where this entry does not answer `wanted`; labels that are left out match anything."""
        fields = self.fields
        return tuple(
            Difference(label, fields.get(label), value)
            for label, value in sorted(wanted.items())
            if fields.get(label) != value
        )


_FIELDS = {*Entry.__struct_fields__}


def _settled(manifest: Manifest) -> Pairs:
    """`info["settled"]` of a manifest, of which only open fields count; `info` is free."""
    said, known = manifest.info.get("settled"), manifest.open_fields
    found = said.items() if isinstance(said, dict) else ()
    return tuple(sorted((k, v) for k, v in found if k in known and isinstance(v, str)))


def encode_ref(entry: Entry) -> bytes:
    """The bytes of a ref file."""
    fields = {**msgspec.to_builtins(entry), "format_version": FORMAT_VERSION}
    record = canonical.encode(fields, "ref")
    return record + b"\n" + Digest.of(record).hex.encode() + b"\n"


def decode_ref(data: bytes, base: str, artifact: str) -> Entry:
    """Read a ref from untrusted bytes.

    Args:
        data: the file's bytes.
        base, artifact: the names of its folder and of the file, which it must agree with.

    Raises:
        NewerFormat: written by a later vcc: a miss.
        FormatError: anything else that is wrong with it.
    """
    record, sum_line = data[:-66], data[-66:]
    if sum_line != b"\n" + Digest.of(record).hex.encode() + b"\n":
        raise FormatError("the ref is damaged", "its sum does not match")
    fields = canonical.decode(record, "ref")
    if not isinstance(fields, dict):
        raise FormatError("the ref is not a ref")
    check_version(fields.get("format_version"), "ref")
    try:
        entry = msgspec.convert({name: fields[name] for name in _FIELDS & fields.keys()}, Entry)
    except msgspec.ValidationError as error:
        raise FormatError("the ref has a wrong field", str(error)) from error
    _check(entry, base, artifact)
    return entry


def _check(entry: Entry, base: str, artifact: str) -> None:
    check_pairs(entry.request, "ref's request")
    check_pairs(entry.settled, "ref's settled fields")
    if not is_digest(entry.artifact) or entry.artifact != artifact:
        raise FormatError("the ref lies under another artifact's name", f"it is {entry.artifact}")
    if entry.base.digest.hex != base:
        raise FormatError("the ref lies under another request", f"it answers {entry.base.digest}")
    numbers = (entry.created, entry.size, entry.build_ms)
    if not all(0 <= number <= MAX_INT for number in numbers):
        raise FormatError("the ref has a number out of bounds")
