"""vcc.load: words that are none are refused before anything is looked up."""

from __future__ import annotations

from pathlib import Path

import pytest

from vcc.cache.errors import ConfigError, UsageError
from vcc.engine.loading import load


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        ({"golden": "of"}, UsageError, "off, one, all"),
        ({"kv_memory": 0.9}, ConfigError, "20GiB"),
        ({"kv_memory": "1.1"}, ConfigError, "20GiB"),
        ({"dtype": "int8"}, ConfigError, "bf16"),
        ({"max_num_seqs": 0}, ConfigError, ""),
    ],
)
def test_words_that_are_none_are_refused(
    tmp_path: Path, said: dict[str, object], kind: type[UsageError], words: str
) -> None:
    with pytest.raises(kind) as told:
        load("demo", target="cpu", cache_dir=tmp_path, require_warm=True, **said)  # type: ignore[arg-type]
    assert words in f"{told.value.why} {told.value.hint}"
    assert list(tmp_path.iterdir()) == []
