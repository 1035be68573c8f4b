"""vcc.load: words that are none are refused before anything is looked up."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from support.fake_engine import install

from vcc.cache.errors import ConfigError, UsageError
from vcc.engine.events import NotedEvents, NullEvents
from vcc.engine.library.compiled import Accounts
from vcc.engine.loading import load
from vcc.engine.stage_monitor import Monitor


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


@pytest.mark.parametrize("monitored", [False, True])
def test_a_build_is_a_warning_once_and_a_warm_load_is_none(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    monitored: bool,
) -> None:
    install(monkeypatch)
    heard = NotedEvents(NullEvents())
    for _ in range(2):
        monitor = Monitor(heard) if monitored else None
        load("demo", target="cpu", cache_dir=tmp_path / "store", monitor=monitor)
    said = "no artifact to boot from, so it is built now: the store is empty"
    warnings = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert [(one.name, one.getMessage()) for one in warnings] == [("vcc", said)]
    assert heard.notes == ([said] if monitored else [])


def test_compiled_modules_tell_the_log_and_their_monitor(caplog: pytest.LogCaptureFixture) -> None:
    heard = NotedEvents(NullEvents())
    with caplog.at_level(logging.INFO, "vcc"):
        Accounts.of(Monitor(heard), None).events.note("first")
        Accounts.of(None, None).events.note("second")
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("INFO", "first"),
        ("INFO", "second"),
    ]
    assert heard.notes == ["first"]
