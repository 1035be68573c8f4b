"""What is fuzzed: every reader of bytes that another account or machine may have written.

A target takes any bytes and either reads them or raises an error of vcc. What it read, it writes
and reads again as the same value. Bytes may differ: an earlier minor version has fewer fields, a
later one more.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256

import msgspec

from vcc.cache.care.filters import FIELDS, parse_filter
from vcc.cache.care.items import Item
from vcc.cache.errors import UsageError, VccError
from vcc.cache.manifest import Manifest
from vcc.cache.pack.form import LENGTH_BYTES, MAGIC
from vcc.cache.pack.read import PackReader
from vcc.cache.request import Entry, decode_ref, encode_ref
from vcc.cache.trust.statement import Statement

BASE, ARTIFACT = "0" * 64, "1" * 64
ITEM = Item(
    artifact=ARTIFACT,
    base=BASE,
    title="demo",
    size=1000,
    build_ms=5,
    created=1,
    used=2.0,
    now=3.0,
    hits=1,
    pinned=False,
    holders=0,
    shown={},
    request="[]",
    host_rules="[]",
)


def manifest(data: bytes) -> None:
    """A manifest, which a remote may send."""
    found = Manifest.decode(data)
    if Manifest.decode(found.encode()) != found:
        raise AssertionError(found)


def ref(data: bytes) -> None:
    """A ref, under the names that it claims where it claims any, as it is and with a right sum."""
    for text in (data, data + b"\n" + sha256(data).hexdigest().encode() + b"\n"):
        names = _names_of(text)
        with suppress(VccError):
            found = decode_ref(text, *names)
            if decode_ref(encode_ref(found), *names) != found:
                raise AssertionError(found)


def pack(data: bytes) -> None:
    """A pack, read from its first byte to its last, as it is and with a right head."""
    index, _, rest = data.partition(b"\n\n")
    head = MAGIC + len(index).to_bytes(LENGTH_BYTES, "little") + sha256(index).digest()
    for text in (data, head + index + rest):
        with suppress(VccError):
            for blob, parts in PackReader.open(io.BytesIO(text)).blobs():
                if sum(map(len, parts)) != blob.size:
                    raise AssertionError(blob)


def signature(data: bytes) -> None:
    """A signature file."""
    found = Statement.decode(data)
    again = found.encode()
    if again != data:
        raise AssertionError(f"written as {again!r}")
    found.signed_bytes()


def filter_text(data: bytes) -> None:
    """A filter as a user may type it."""
    found = parse_filter(data.decode("utf-8", "surrogateescape"))
    if found.field not in FIELDS:
        raise AssertionError(found)
    found.holds(ITEM, {"torch": "2.13.0"})


def _names_of(data: bytes) -> tuple[str, str]:
    try:
        entry = msgspec.json.decode(data[:-66], type=Entry)
        return entry.base.digest.hex, entry.artifact
    except (msgspec.MsgspecError, UsageError, ValueError):
        return BASE, ARTIFACT


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    "manifest": manifest,
    "ref": ref,
    "pack": pack,
    "signature": signature,
    "filter": filter_text,
}


def attempt(name: str, data: bytes) -> None:
    """One input; an error of vcc is an answer, anything else is a fault."""
    try:
        TARGETS[name](data)
    except VccError:
        return
