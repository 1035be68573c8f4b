"""docs/passes.md: the pass on the page, done exactly as the page says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from support.flow import ask

from vcc.cache.store import Store
from vcc.cli import main
from vcc.engine.compile.keys import build_keys
from vcc.engine.events import NullEvents
from vcc.engine.monitor import Counters
from vcc.engine.pipeline import build
from vcc.engine.request import Built, look_up, settle

PAGE = Path(__file__).parents[3] / "docs" / "passes.md"
MODEL = ("support.own_passes:make", "--shape", "x=1-64x8")
CONFIG = '{"user_passes": ["my_passes:SQUARE"]}'


def on_the_page() -> str:
    found = re.search(r"<!-- pass -->\n```python\n(.*?)```\n<!-- end pass -->", text(), re.DOTALL)
    assert found is not None
    return found[1]


def text() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_passes.py").write_text(on_the_page())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VCC_CACHE_DIR", str(tmp_path / "store"))
    monkeypatch.delitem(sys.modules, "my_passes", raising=False)
    return tmp_path


def test_the_pass_is_short() -> None:
    assert len(on_the_page().splitlines()) < 40
    assert CONFIG in text()


def test_the_pass_is_checked_as_the_page_says(folder: Path, capsys: Any) -> None:
    assert main.run(["passes", "check", "my_passes:SQUARE", *MODEL]) == 0
    assert "fired 1 time" in capsys.readouterr().out


def built(folder: Path, config: str) -> tuple[Built, Counters]:
    asked, counters = ask(MODEL[0], inputs=(MODEL[2],), config=config), Counters()
    store = Store.open(folder / "store", on_damage=lambda _: None)
    return build(asked, store, NullEvents(), counters), counters


def test_a_build_with_it_is_another_artifact_that_its_source_is_part_of(folder: Path) -> None:
    made, _ = built(folder, CONFIG)
    report = {one["name"]: one for one in made.loaded.manifest.info["passes"]}["square"]
    assert report["matches"] == 1
    labels = dict(made.loaded.manifest.code_key)
    assert labels["user_pass.my_passes:SQUARE"]
    assert labels["pass.square"] == report["version"]
    again, counters = built(folder, CONFIG)
    assert again.reused
    assert counters["traces"] == 0
    (folder / "my_passes.py").write_text(on_the_page() + "# changed\n")
    sys.modules.pop("my_passes")
    changed = build_keys(settle(ask(MODEL[0], inputs=(MODEL[2],), config=CONFIG)))
    assert not changed.same_code(made.loaded.manifest)
    _, stated = look_up(settle(ask(MODEL[0], inputs=(MODEL[2],), config=CONFIG)))
    assert stated["user_pass.my_passes:SQUARE"] != labels["user_pass.my_passes:SQUARE"]
