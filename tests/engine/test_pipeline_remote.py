"""A build takes what a remote has of its very request, and nothing else. No compiler runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.builds import MODEL
from support.flow import ask, kept_environment
from support.remotes import push_all

from vcc.cache.settings import read_settings
from vcc.cache.store import Store
from vcc.cache.trust.place import TrustPlace
from vcc.cache.trust.remotes import change_remotes
from vcc.engine.compile import pool
from vcc.engine.events import NotedEvents, NullEvents
from vcc.engine.monitor import Counters
from vcc.engine.pipeline import build
from vcc.engine.request import Built
from vcc.engine.torch_shim import preload
from vcc.engine.types import CompiledPiece


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A trusted remote, and a folder with the small module to build."""

    def stand_in(pieces, options, jobs, events, *_):
        return tuple(CompiledPiece(p.id, b"\x7fELF" + p.id.encode(), None, None, 0) for p in pieces)

    monkeypatch.setattr(pool, "compile_pieces", stand_in)
    monkeypatch.setattr(preload, "preload_inductor", lambda level: None)
    monkeypatch.setenv("VCC_TRUST_DIR", str(tmp_path / "trust"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "small", raising=False)
    (tmp_path / "small.py").write_text(MODEL)
    (tmp_path / "remote").mkdir()
    url = f"file://{tmp_path}/remote"
    change_remotes(TrustPlace.open(tmp_path / "trust"), url, trusted=True)
    with kept_environment():
        yield url


def run(root: Path, url: str = "", *, sizes: str = "1,2") -> tuple[Built, list[str]]:
    """Build the small module in the store at `root`; notes with it."""
    events = NotedEvents(NullEvents())
    store = Store.open(root, settings=replace(read_settings(), remote=url))
    asked = ask("small:make", inputs=("x=1-64x48",), shapes=sizes)
    return build(asked, store, events, Counters()), events.notes


def test_what_a_trusted_remote_has_is_not_built(remote: str, tmp_path: Path) -> None:
    built, _ = run(tmp_path / "ci")
    push_all(Store.open(tmp_path / "ci"), remote)
    again, notes = run(tmp_path / "here", remote)
    assert again.reused
    assert again.entry == built.entry
    assert any("pulled from" in note for note in notes)


def test_another_request_brings_nothing(remote: str, tmp_path: Path) -> None:
    run(tmp_path / "ci")
    push_all(Store.open(tmp_path / "ci"), remote)
    built, notes = run(tmp_path / "here", remote, sizes="1,4")
    assert not built.reused
    assert not any("pulled" in note for note in notes)
    assert len(list(Store.open(tmp_path / "here").entries())) == 1


def test_a_remote_that_fails_costs_nothing_but_a_word(remote: str, tmp_path: Path) -> None:
    built, _ = run(tmp_path / "here", f"file://{tmp_path}/nowhere/x")
    assert not built.reused
    assert built.entry is not None
