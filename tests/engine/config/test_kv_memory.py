"""KvMemory: sizes and shares as people write them."""

from __future__ import annotations

import pytest

from vcc.cache.errors import ConfigError
from vcc.engine.config.kv_memory import KvMemory


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("20GiB", KvMemory(bytes=20 << 30)),
        ("1.5 GiB", KvMemory(bytes=3 << 29)),
        ("512MB", KvMemory(bytes=512 * 10**6)),
        ("4096", KvMemory(bytes=4096)),
        ("0.9", KvMemory(share=0.9)),
        ("1", KvMemory(share=1.0)),
        (" 2kib ", KvMemory(bytes=2048)),
    ],
)
def test_forms(text: str, wanted: KvMemory) -> None:
    assert KvMemory.parse(text) == wanted
    assert KvMemory.parse(str(wanted)).of(1 << 40) == wanted.of(1 << 40)


@pytest.mark.parametrize(
    "text", ["", "0", "0.0", "-1", "lots", "1e9", "5GiBs", "nan", "0 GiB", "1.1"]
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as told:
        KvMemory.parse(text)
    assert "20GiB" in told.value.hint


def test_a_number_of_python_is_no_text() -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        KvMemory.parse(0.9)  # type: ignore[arg-type]


def test_a_size_is_no_more_than_is_free() -> None:
    assert KvMemory(bytes=100).of(60) == 60
    assert KvMemory(share=0.5).of(60) == 30
