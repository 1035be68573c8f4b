"""How the paths of a store lie in an OCI repository.

    v1/cas/sha256/ab/<digest>          the blob sha256:<digest>
    v1/refs/<base>/<artifact>          tag ref.<base>.<artifact>, digests in base 32
    v1/signatures/<artifact>/<key>     tag sig.<artifact>.<key>

A tag is an image manifest whose first layer is the file. Those after it are what the file keeps
alive: a registry removes blobs that no manifest names.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence

from vcc.cache.digest import Digest, is_digest
from vcc.cache.errors import RemoteError
from vcc.cache.remote.base import Blob

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
EMPTY_TYPE, EMPTY = "application/vnd.oci.empty.v1+json", b"{}"
BLOB_TYPE = "application/vnd.vcc.blob.v1"
KINDS: Mapping[str, str] = {"refs": "ref", "signatures": "sig"}
MAX_MANIFEST = 4 << 20
"""Bytes; what registries accept."""

_TAG = re.compile(r"(ref|sig)\.([a-z2-7]{52})\.([a-z0-9_-]{1,70})\Z")
_KEY = re.compile(r"[a-z0-9_-]{1,70}\Z")


def blob_of(path: str) -> Digest | None:
    """The digest of a path below `cas`; None for another path."""
    head, _, name = path.rpartition("/")
    return Digest(name) if head == f"v1/cas/sha256/{name[:2]}" and is_digest(name) else None


def tag_of(path: str) -> str:
    """The tag of a ref or signature.

    Raises:
        RemoteError: the path has no place in a repository.
    """
    top, _, rest = path.partition("/")
    kind, _, names = rest.partition("/")
    folder, _, name = names.partition("/")
    if top != "v1" or kind not in KINDS or not is_digest(folder):
        raise RemoteError(f"{path[:80]} has no place in a registry")
    if kind == "refs" and is_digest(name):
        return f"ref.{_b32(folder)}.{_b32(name)}"
    if kind == "signatures" and _KEY.match(name):
        return f"sig.{_b32(folder)}.{name}"
    raise RemoteError(f"{path[:80]} has no place in a registry")


def path_of(tag: str) -> str | None:
    """The path of a tag; None for a tag that is not ours."""
    found = _TAG.match(tag)
    if found is None:
        return None
    folder, name = _hex(found[2]), found[3]
    if found[1] == "ref":
        name = _hex(name) if len(name) == 52 else ""
    if not is_digest(folder) or not name:
        return None
    path = f"v1/{'refs' if found[1] == 'ref' else 'signatures'}/{folder}/{name}"
    return path if tag_of(path) == tag else None


def manifest_of(path: str, data: bytes, keeps: Sequence[Blob]) -> bytes:
    """The image manifest of a ref or signature; the same bytes for the same content."""
    kind = KINDS[path.split("/")[1]]
    layers = [_descriptor(f"application/vnd.vcc.{kind}.v1", Blob(Digest.of(data), len(data)))]
    layers += [_descriptor(BLOB_TYPE, blob) for blob in sorted(keeps, key=_by_digest)]
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": f"application/vnd.vcc.{kind}.v1",
        "config": _descriptor(EMPTY_TYPE, Blob(Digest.of(EMPTY), len(EMPTY))),
        "layers": layers,
    }
    return json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()


def file_of(manifest: bytes, what: str) -> Blob:
    """Digest and size of the file that a tag is.

    Raises:
        RemoteError: the manifest is not one of ours.
    """
    try:
        layer = json.loads(manifest)["layers"][0]
        digest, size = layer["digest"], layer["size"]
        if type(size) is not int or not 0 <= size <= MAX_MANIFEST:
            raise ValueError("size")
        return Blob(Digest(digest.removeprefix("sha256:")), size)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise RemoteError(f"{what}: the tag is not of a file of vcc") from error


def _descriptor(media_type: str, blob: Blob) -> dict[str, object]:
    return {
        "mediaType": media_type,
        "digest": f"sha256:{blob.digest.hex}",
        "size": blob.size,
    }


def _by_digest(blob: Blob) -> Digest:
    return blob.digest


def _b32(digest: str) -> str:
    """Base 32 and lower case: two digests fit in a tag, on a file system without capitals too."""
    return base64.b32encode(bytes.fromhex(digest)).decode("ascii").rstrip("=").lower()


def _hex(text: str) -> str:
    return base64.b32decode(text.upper() + "====").hex() if len(text) == 52 else ""
