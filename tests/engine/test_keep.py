"""A folder for intermediate files that cannot be: refused before anything is traced."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.flow import ask, built
from support.stores import child, exit_of

from vcc.cache.errors import StorageError
from vcc.cache.store import Store
from vcc.engine.forecast import forecast
from vcc.engine.refusals import check_keep
from vcc.engine.request import settle


def _file(place: Path) -> Path:
    place.touch()
    return place


def _loop(place: Path) -> Path:
    place.symlink_to(place)
    return place


BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a file": (_file, "is no folder"),
    "below a file": (lambda place: _file(place) / "a" / "b", "is no folder"),
    "a loop of links": (_loop, "symbolic links"),
    "below a link to nowhere": (lambda place: _nowhere(place) / "a", "No such file"),
    "a long name": (lambda place: place / "new" / ("a" * 300), "is too long"),
    "a NUL": (lambda place: place / "a\0b", "null"),
}


def _nowhere(place: Path) -> Path:
    place.symlink_to(place.with_name("nowhere"))
    return place


@pytest.mark.parametrize("kind", BAD)
def test_a_dry_run_refuses_what_the_build_refuses_and_neither_leaves_a_file(
    tmp_path: Path, kind: str
) -> None:
    make, why = BAD[kind]
    asked = ask("demo", keep=make(tmp_path / "place"))
    before = sorted(tmp_path.rglob("*"))
    store = Store.open(tmp_path / "store")
    for refused in (lambda: forecast(settle(asked), store), lambda: built(asked, store)):
        with pytest.raises(StorageError, match="cannot keep intermediate files") as told:
            refused()
        assert why in told.value.why
        assert "--keep" in told.value.hint
    left = (one for one in tmp_path.rglob("*") if store.root not in (one, *one.parents))
    assert sorted(left) == before


@pytest.fixture
def open_tmp() -> Iterator[Path]:
    """A folder that another account may enter; pytest's own is closed to it."""
    folder = Path(tempfile.mkdtemp(prefix="vcc-test-"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("inside", ["", "new/folder"])
def test_a_folder_of_somebody_else_is_refused(open_tmp: Path, inside: str) -> None:
    """Also where this test runs as root, who may write everywhere."""
    open_tmp.chmod(0o555)

    def refused() -> None:
        with pytest.raises(StorageError, match="cannot keep") as told:
            check_keep(open_tmp / inside)
        assert "nothing can be written" in told.value.why

    assert exit_of(child(refused, uid=54321)) == 0


@pytest.mark.parametrize("inside", ["", "a/b/c"])
def test_a_folder_that_can_be_made_is_taken_and_not_made(tmp_path: Path, inside: str) -> None:
    check_keep(tmp_path / inside)
    check_keep(None)
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_already_needs_no_folder(tmp_path: Path, demo_shelf: Path) -> None:
    """A build of it keeps nothing and says so."""
    asked = replace(ask("demo"), keep=_file(tmp_path / "file"))
    assert not forecast(settle(asked), Store.open(demo_shelf)).missing
