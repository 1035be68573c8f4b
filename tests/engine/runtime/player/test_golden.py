"""Goldens on the libcuda double: what is checked, that a difference is named, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.fake_cuda.fixtures import RawArena
from support.golden_tables import PIECE, SHAPE, copying
from support.player_boot import boot, loaded
from support.player_case import playing

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.golden import Argument, Golden, WrongResult
from vcc.engine.runtime.player.golden import check_golden, check_goldens, played
from vcc.engine.runtime.settings import Boot

pytestmark = pytest.mark.usefixtures("double")


def wrong(golden: Golden) -> Golden:
    """A reference with one other element."""
    other = golden.references[0].copy()
    other[2, 3] += 0.5
    return replace(golden, references=(other,))


def test_a_golden_that_holds_leaves_no_memory_behind(arena: RawArena) -> None:
    with playing(arena) as handle:
        before = arena.stats()["live"]
        golden = copying()
        (got,) = played(handle, PIECE, golden)
        np.testing.assert_array_equal(got, golden.references[0])
        check_golden(handle, PIECE, Golden.decode(golden.encode()))
        assert arena.stats()["live"] == before


def test_a_difference_names_the_piece_and_the_output(arena: RawArena) -> None:
    with playing(arena) as handle:
        with pytest.raises(WrongResult, match=f"piece {PIECE[:12]} computes") as caught:
            check_golden(handle, PIECE, wrong(copying()))
        assert "output 0: error 0.5" in caught.value.why
        assert caught.value.exit == 7


def test_a_result_that_nobody_writes_is_a_difference(arena: RawArena) -> None:
    with playing(arena) as handle, pytest.raises(WrongResult, match="computes something else"):
        check_golden(handle, PIECE, copying(nodes=0))


def test_a_result_is_read_by_its_strides(arena: RawArena) -> None:
    golden = copying()
    flat = golden.references[0].reshape(-1)
    halves = np.lib.stride_tricks.as_strided(flat, (4, 12), (4 * 24, 4)).copy()
    arguments = (golden.arguments[0], Argument("bfloat16", (4, 12), True))
    with playing(arena) as handle:
        view = replace(golden, arguments=arguments, references=(halves,), strides=((24, 1),))
        check_golden(handle, PIECE, view)
        outside = replace(view, strides=((60, 1),))
        with pytest.raises(IntegrityError, match="golden refused") as caught:
            check_golden(handle, PIECE, outside)
    assert "outside its memory" in caught.value.why


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"table": b"", "strides": ()}, "not for a player"),
        ({"arguments": (Argument("bfloat16", (3, 3), True), Argument("bfloat16", SHAPE, True))},
         "another size"),
        ({"table": b"vcctable"}, ""),
    ],
)  # fmt: skip
def test_a_golden_of_another_kind_is_refused(
    arena: RawArena, changes: dict[str, object], why: str
) -> None:
    with playing(arena) as handle, pytest.raises(IntegrityError) as caught:
        check_golden(handle, PIECE, replace(copying(), **changes))  # type: ignore[arg-type]
    assert why in caught.value.why
    assert not isinstance(caught.value, WrongResult)


CHEAP, DEAR = "a" * 64, "b" * 64


def asked(folder: Path, which: str, **goldens: Golden) -> Boot:
    """A boot of an artifact with these goldens, the second one dearer, and a piece without one."""
    blobs = {f"golden/{name}": one.encode() for name, one in goldens.items()}
    costs = {CHEAP: 10, DEAR: 20, "c" * 64: "it is too large"}
    return replace(boot(folder, blobs=blobs, info={"goldens": costs}), golden=which)


def test_one_is_the_cheapest_and_off_is_none(weights: Path, arena: RawArena) -> None:
    both = {CHEAP: copying(CHEAP), DEAR: wrong(copying(DEAR))}
    with playing(arena) as handle:
        counts = {
            which: check_goldens(asked(weights, which, **both).loaded, handle, which)
            for which in ("off", "one")
        }
        assert counts["off"] == 0
        assert counts["one"] == 1
        with pytest.raises(WrongResult, match=DEAR[:12]):
            check_goldens(asked(weights, "all", **both).loaded, handle, "all")


def test_a_boot_checks_and_accounts_for_it(weights: Path) -> None:
    told = asked(weights, "all", **{CHEAP: copying(CHEAP), DEAR: copying(DEAR)})
    runner = loaded(told)
    try:
        assert told.ledger.account()[0]["golden"] > 0
        notes = json.dumps(told.events.notes)  # type: ignore[attr-defined]
        assert "golden: 2 checked, 1 pieces have none: it is too large" in notes
    finally:
        runner.close()


@pytest.mark.parametrize("which", ["off", "one", "all"])
def test_a_boot_that_can_check_nothing_says_why(weights: Path, which: str) -> None:
    told = asked(weights, which)
    loaded(told).close()
    notes = [note for note in told.events.notes if "golden" in note]  # type: ignore[attr-defined]
    said = ["golden: 0 checked, 1 pieces have none: it is too large"]
    assert notes == ([] if which == "off" else said)


@pytest.mark.parametrize("which", ["one", "all"])
def test_a_boot_refuses_code_that_computes_something_else(weights: Path, which: str) -> None:
    with pytest.raises(WrongResult, match=f"piece {CHEAP[:12]} computes"):
        loaded(asked(weights, which, **{CHEAP: wrong(copying(CHEAP))}))
    loaded(asked(weights, "off", **{CHEAP: wrong(copying(CHEAP))})).close()
