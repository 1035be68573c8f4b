"""docs/format.md and docs/keys.md name what the code has."""

from __future__ import annotations

import re

import pytest
from support.sources import ROOT

from vcc.cache import blob, canonical, manifest, publish, quarantine, refs, single_flight
from vcc.cache.key import HEADER
from vcc.cache.manifest import BlobRef, Manifest
from vcc.cache.request import Entry

FORMAT = (ROOT / "docs" / "format.md").read_text()
KEYS = (ROOT / "docs" / "keys.md").read_text()


def block(after: str) -> str:
    return FORMAT.split(after, 1)[1].split("```text", 1)[1].split("```", 1)[0]


def test_the_layout_has_every_folder():
    folders = ("/".join(blob.CAS), refs.REFS, publish.TMP, single_flight.LOCKS)
    for folder in (*folders, quarantine.QUARANTINE):
        assert f"  {folder}/" in block("## Place and layout")


def test_the_manifest_grammar_has_exactly_the_fields():
    written = set(re.findall(r'^  "(\w+)":', block("## Manifest"), re.MULTILINE))
    assert written == set(Manifest.__struct_fields__) - {"extra"}
    assert all(f'"{field}"' in block("## Manifest") for field in BlobRef.__struct_fields__)


def test_the_ref_grammar_has_exactly_the_fields():
    record = block("## Ref").split("canonical JSON: ", 1)[1].split("sum", 1)[0]
    assert set(re.findall(r"\w+", record)) == {*Entry.__struct_fields__, "format_version"}


def test_versions_and_caps_are_said_as_they_are():
    assert f"Format version {manifest.FORMAT_VERSION}." in FORMAT
    assert f"{canonical.MAX_BYTES >> 20} MiB, {canonical.MAX_DEPTH} levels" in FORMAT
    assert HEADER in KEYS


@pytest.mark.parametrize("kind", [*(kind for _, kind in manifest._KINDS)])
def test_every_kind_of_blob_is_in_the_table(kind):
    assert re.search(rf"^\| `.*` \| {kind} \|", FORMAT, re.MULTILINE)


def test_every_host_rule_is_in_the_table():
    from vcc.engine.runtime.host import CHECKS

    written = re.findall(r"^\| `(\w+)` \|", KEYS, re.MULTILINE)
    assert sorted(written) == sorted(CHECKS)
