"""docs/remotes.md says what the code does."""

from __future__ import annotations

import re

import pytest
from support.sources import ROOT

from vcc.cache.pack.form import MAX_ARTIFACTS
from vcc.cache.remote.bucket import MAX_PUT
from vcc.cache.remote.offers import MAX_NAMES, MAX_OFFERS
from vcc.cache.remote.patience import BY_HAND, ON_A_MISS
from vcc.cache.remote.url import _INNER, OPTIONS
from vcc.cache.trust.signature import MAX_SIGNATURES

PAGE = re.sub(r"\s+", " ", (ROOT / "docs" / "remotes.md").read_text())
FORMAT = re.sub(r"\s+", " ", (ROOT / "docs" / "format.md").read_text())


@pytest.mark.parametrize("scheme", OPTIONS)
def test_the_table_has_every_scheme_with_its_options(scheme):
    row = re.search(rf"\| `{scheme}://[^|]*\|[^|]*\|([^|]*)\|", PAGE)
    assert set(re.findall(r"`(\w+)`", row[1])) == set(OPTIONS[scheme])


def test_limits_are_said_as_they_are():
    one, two = BY_HAND, ON_A_MISS
    assert f"within {one.connect_s:.0f} seconds, a byte comes in any {one.idle_s:.0f}" in PAGE
    assert one.total_s == 3600
    assert f"asked {one.attempts} times" in PAGE
    assert f"up to {one.longest_wait_s:.0f} seconds" in PAGE
    patient = f"{two.connect_s:.0f}, {two.idle_s:.0f} and {two.total_s:.0f} seconds"
    assert f"{patient}, {two.attempts} times, waits up to {two.longest_wait_s:.0f}" in PAGE


def test_caps_are_said_as_they_are():
    assert f"{MAX_NAMES:,} names are listed and {MAX_OFFERS:,} refs" in PAGE
    assert f"at most {MAX_SIGNATURES}." in PAGE
    assert f"One put of S3 holds {MAX_PUT // 10**9} GB" in PAGE
    assert f"{MAX_ARTIFACTS:,} artifacts" in FORMAT


@pytest.mark.parametrize("name", _INNER)
def test_names_of_a_site_are_listed(name):
    assert f"`.{name}`" in PAGE


def test_the_table_of_rows_names_tests_that_are_there():
    text = (ROOT / "tests/cache/remote/conftest.py").read_text()
    rows = re.findall(
        r"^    (1[23]\d) .*?((?:test_\w+\.py|tests/\S+)(?:, test_\w+\.py)*)$", text, re.M
    )
    expected = [121, 122, 124, 125, 126, 127, 128, 129, 131, 132, 134, 135, 136, 137, 138]
    assert [int(number) for number, _ in rows] == expected
    for _, files in rows:
        for name in files.split(", "):
            place = ROOT / name if "/" in name else ROOT / "tests/cache/remote" / name
            assert place.exists(), name
