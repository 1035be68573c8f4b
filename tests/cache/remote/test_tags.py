"""How paths lie in a repository: there and back, and nothing else."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcc.cache.digest import Digest
from vcc.cache.errors import RemoteError
from vcc.cache.remote.base import Blob
from vcc.cache.remote.tags import blob_of, file_of, manifest_of, path_of, tag_of

DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
TAG = re.compile(r"[a-z0-9_][a-z0-9._-]{0,127}\Z")  # of the specification, without capitals


@given(DIGESTS, DIGESTS, st.sampled_from(["refs", "signatures"]))
def test_a_path_has_one_tag_and_a_tag_one_path(folder, name, kind):
    path = f"v1/{kind}/{folder}/{name}"
    tag = tag_of(path)
    assert TAG.match(tag)
    assert path_of(tag) == path


@given(st.text(max_size=130))
def test_a_tag_that_is_not_ours_has_no_path(text):
    for tag in (text, f"ref.{text}", f"sig.{text}"):
        path = path_of(tag)
        assert path is None or tag_of(path) == tag


@pytest.mark.parametrize(
    "path", ["v1/refs/x/y", "v1/tmp/" + "a" * 64 + "/b", "../x", "", "v1/refs/" + "a" * 64]
)
def test_other_paths_have_no_place(path):
    with pytest.raises(RemoteError):
        tag_of(path)


def test_blobs_are_told_by_their_path():
    digest = Digest.of(b"x")
    assert blob_of(f"v1/cas/sha256/{digest.hex[:2]}/{digest}") == digest
    assert blob_of(f"v1/cas/sha256/zz/{digest}") is None
    assert blob_of(f"v1/refs/{digest}/{digest}") is None


def test_a_tag_names_its_file_first_and_keeps_the_rest_alive():
    path = f"v1/refs/{'a' * 64}/{'b' * 64}"
    kept = Blob(Digest.of(b"blob"), 4)
    manifest = manifest_of(path, b"ref", (kept,))
    assert file_of(manifest, "reading") == Blob(Digest.of(b"ref"), 3)
    layers = json.loads(manifest)["layers"]
    assert [one["digest"] for one in layers[1:]] == [f"sha256:{kept.digest}"]
    assert manifest == manifest_of(path, b"ref", (kept,))


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"[]", b"[" * 100_000, b'{"layers":[]}', b'{"layers":[{"digest":1,"size":1}]}',
     b'{"layers":[{"digest":"sha256:x","size":1}]}',
     b'{"layers":[{"digest":"sha256:%s","size":-1}]}' % (b"a" * 64),
     b'{"layers":[{"digest":"sha256:%s","size":true}]}' % (b"a" * 64)],
)  # fmt: skip
def test_a_manifest_that_is_not_ours_is_refused(text):
    with pytest.raises(RemoteError, match="not of a file of vcc"):
        file_of(text, "reading")
