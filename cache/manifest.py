"""The manifest: what an artifact is, what it was built from and which blobs it consists of.

Canonical JSON (`canonical.py`); its SHA-256 is the artifact's id. A reader keeps fields that it
does not know, unless the writer listed them under `critical`: then it must not use the artifact.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from vcc.cache import canonical
from vcc.cache.canonical import MAX_INT, FormatError
from vcc.cache.digest import Digest, is_digest, xxh3
from vcc.cache.errors import MissingArtifact
from vcc.cache.key import Key, Pairs

FORMAT_VERSION = "1.1"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*\Z")
_VERSION = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})\Z")
_KINDS = (
    (re.compile(r"program(/.*)?\Z"), "program"),
    (re.compile(r"piece/.*\.so\Z"), "library"),
    (re.compile(r"piece/.*\.ops\Z"), "operators"),
    (re.compile(r"piece/.*\.json\Z"), "library-table"),
    (re.compile(r"table/"), "table"),
    (re.compile(r"cubin/[0-9a-f]{64}\Z"), "cubin"),
    (re.compile(r"constant/"), "constant"),
    (re.compile(r"golden/"), "golden"),
)


class NewerFormat(MissingArtifact):
    """Stored by a later vcc in a format that this one must not read: a miss, not damage."""

    id = "NEWER_FORMAT"


class BlobRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One blob of an artifact: digests as hex text, size in bytes, kind as a word."""

    sha256: str
    xxh3: str
    size: int
    kind: str

    @classmethod
    def of(cls, name: str, data: bytes | bytearray | memoryview, kind: str = "") -> BlobRef:
        """The reference to `data`; the kind follows from the name unless it is given."""
        size = memoryview(data).nbytes
        return cls(Digest.of(data).hex, xxh3(data), size, kind or kind_of(name))

    @property
    def digest(self) -> Digest:
        """The SHA-256 as a value."""
        return Digest(self.sha256)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The commit record of an artifact.

    Args:
        request: all request fields (see `request.py`), sorted pairs.
        open_fields: the labels of `request` that a look-up may leave open.
        code_key, plan_key: the full entries of both keys, sorted pairs.
        host_rules: what must hold where the artifact is loaded, rule name to text.
        blobs: blob name to reference; `Store.publish` fills it in.
        created: seconds since 1970, whole; part of no key.
        builder: versions of what built it.
        title: what it is, for people; part of no key.
        info: free JSON: ranges, reasons, bindings, ledger.
        build_ms: milliseconds that the build took, 0 where nobody knows; part of no key.
        critical: top-level fields that a reader must know to use the artifact.
        extra: fields of a later minor version, kept as they are.
    """

    request: Pairs
    code_key: Pairs
    plan_key: Pairs = ()
    open_fields: tuple[str, ...] = ()
    host_rules: dict[str, str] = {}
    blobs: dict[str, BlobRef] = {}
    created: int = 0
    builder: dict[str, str] = {}
    title: str = ""
    info: dict[str, Any] = {}
    critical: tuple[str, ...] = ()
    build_ms: int = 0
    format_version: str = FORMAT_VERSION
    extra: dict[str, Any] = {}

    def encode(self) -> bytes:
        """The canonical text.

        Raises:
            FormatError: a field breaks a cap or a rule.
        """
        check(self)
        fields = dict(msgspec.to_builtins(self))
        extra = fields.pop("extra")
        return canonical.encode({**extra, **fields}, "manifest")

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Read a manifest from untrusted bytes.

        Raises:
            NewerFormat: another major version, or an unknown critical field.
            FormatError: anything else that is wrong with it.
        """
        fields = canonical.decode(data, "manifest")
        if not isinstance(fields, dict) or "extra" in fields:
            raise FormatError("the manifest is not a manifest", "fields of another kind")
        check_version(fields.get("format_version"), "manifest")
        known = {name: fields[name] for name in _FIELDS if name in fields}
        extra = {name: item for name, item in fields.items() if name not in known}
        try:
            manifest = msgspec.convert({**known, "extra": extra}, cls)
        except msgspec.ValidationError as error:
            raise FormatError("the manifest has a wrong field", str(error)) from error
        check(manifest)
        lacking = set(_FIELDS) - known.keys() - _LATER
        if lacking:
            raise FormatError("the manifest lacks a field", min(lacking))
        return manifest

    def with_blobs(self, blobs: Mapping[str, bytes]) -> Manifest:
        """This manifest with references to exactly these blobs."""
        kinds = {name: ref.kind for name, ref in self.blobs.items()}
        refs = {name: BlobRef.of(name, data, kinds.get(name, "")) for name, data in blobs.items()}
        return msgspec.structs.replace(self, blobs=dict(sorted(refs.items())))

    @property
    def base(self) -> Key:
        """The part of the request that every look-up states."""
        return Key(tuple(pair for pair in self.request if pair[0] not in self.open_fields))

    @property
    def size(self) -> int:
        """Bytes of all blobs; a blob under two names counts once."""
        return sum({ref.sha256: ref.size for ref in self.blobs.values()}.values())


_FIELDS = tuple(sorted(set(Manifest.__struct_fields__) - {"extra"}))
_LATER = frozenset({"build_ms"})  # fields since 1.1: an earlier manifest lacks them


def kind_of(name: str) -> str:
    """The kind of a blob by its name."""
    return next((kind for pattern, kind in _KINDS if pattern.match(name)), "data")


def check_version(version: object, what: str) -> None:
    """Refuse text of another major version.

    Raises:
        NewerFormat: the major version differs.
        FormatError: there is no version.
    """
    match = _VERSION.match(version) if isinstance(version, str) else None
    if match is None:
        raise FormatError(f"the {what} has no format version", repr(version)[:80])
    if match[1] != FORMAT_VERSION.split(".", maxsplit=1)[0]:
        raise NewerFormat(
            f"the {what} has format {version}", f"this vcc reads {FORMAT_VERSION}", "Upgrade vcc"
        )


def check(manifest: Manifest) -> None:
    """Refuse what types alone cannot: rules between and within fields."""
    unknown = sorted(set(manifest.critical) - set(_FIELDS))
    if unknown:
        raise NewerFormat(
            "the manifest needs a later vcc", f"it relies on {', '.join(unknown)}", "Upgrade vcc"
        )
    for field in ("request", "code_key", "plan_key"):
        check_pairs(getattr(manifest, field), f"manifest's {field}")
    labels = {label for label, _ in manifest.request}
    if list(manifest.open_fields) != sorted(set(manifest.open_fields) & labels):
        raise FormatError("the manifest's open_fields are not sorted labels of its request")
    if not (0 <= manifest.created <= MAX_INT and 0 <= manifest.build_ms <= MAX_INT):
        raise FormatError("the manifest's time of creation or of building is out of bounds")
    if set(manifest.extra) & {*_FIELDS, "extra"}:
        raise FormatError("the manifest names a known field as unknown")
    for name, ref in manifest.blobs.items():
        _check_blob(name, ref)


def check_pairs(pairs: Pairs, what: str) -> None:
    """Refuse pairs that are not the sorted entries of a key."""
    try:
        key = Key(pairs)
    except ValueError as error:
        raise FormatError(f"the {what} is not a key", str(error)) from error
    if key.entries != tuple(pairs):
        raise FormatError(f"the {what} is not sorted")


def _check_blob(name: str, ref: BlobRef) -> None:
    if len(name) > 255 or not _NAME.match(name):
        raise FormatError(f"{name[:80]!r} is not a blob name", "letters, digits, . _ + - and /")
    if not is_digest(ref.sha256) or not re.fullmatch(r"[0-9a-f]{32}", ref.xxh3):
        raise FormatError(f"blob {name!r} has a malformed digest")
    if not 0 <= ref.size <= MAX_INT:
        raise FormatError(f"the size of blob {name!r} is out of bounds")
