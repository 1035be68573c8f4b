"""The whole way under the interpreter's stricter modes (RELIABILITY 142)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RUN = ("run", "demo", "--prompt", "It is a truth", "--max-new-tokens", "8", "--require-warm")
NO_ASSERTS, WARNINGS = ("-O",), ("-X", "dev", "-W", "error")
MODES = {"asserts are gone": NO_ASSERTS, "every warning is an error": WARNINGS}
BOTH = (*NO_ASSERTS, *WARNINGS)
"""Of a build, which starts itself again without -O and keeps the rest: it meets both at once."""


@pytest.fixture(params=MODES, ids=str)
def strict(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return MODES[request.param]


@pytest.fixture(scope="module")
def strict_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of these modes' own; the first test fills it."""
    return tmp_path_factory.mktemp("strict") / "store"


def quiet(err: str) -> bool:
    return not any(word in err for word in ("Traceback", "Warning", "Exception ignored"))


def test_a_build_makes_the_same_code(
    spawn: Callable[..., Any], demo_shelf: Path, strict_store: Path
) -> None:
    """Under -O torch's compiler alone would make another one, and a wrong one."""
    done = spawn("compile", "demo", "--json", store=strict_store, flags=BOTH)
    assert done.code == 0, done.err + done.out
    assert quiet(done.err), done.err
    plain = spawn("inspect", "artifact", "demo", "--json", store=demo_shelf).json
    for flags in MODES.values():
        found = spawn("inspect", "artifact", "demo", "--json", store=strict_store, flags=flags)
        assert quiet(found.err), found.err
        assert found.json["blobs"] == plain["blobs"]


def test_a_warm_run_answers_the_same(
    spawn: Callable[..., Any], demo_store: Path, strict: tuple[str, ...], strict_store: Path
) -> None:
    plain = spawn(*RUN, store=demo_store)
    done = spawn(*RUN, store=strict_store, flags=strict)
    assert (plain.code, done.code) == (0, 0), done.err
    assert done.out == plain.out
    assert plain.out.strip()
    assert quiet(done.err), done.err


@pytest.mark.parametrize(
    "words",
    [("inspect", "cache"), ("inspect", "key", "demo"), ("verify", "demo"), ("explain", "demo")],
    ids=" ".join,
)
def test_what_only_looks_looks_the_same(
    spawn: Callable[..., Any],
    strict: tuple[str, ...],
    strict_store: Path,
    words: tuple[str, ...],
) -> None:
    plain = spawn(*words, "--json", store=strict_store)
    done = spawn(*words, "--json", store=strict_store, flags=strict)
    assert (done.code, done.json) == (plain.code, plain.json), done.err
    assert quiet(done.err), done.err


def test_a_process_without_assertions_builds_nothing(
    spawn: Callable[..., Any], tmp_path: Path
) -> None:
    done = spawn("run", "demo", "--prompt", "a", "--json", store=tmp_path, flags=("-O",))
    error = done.json["error"]
    assert (done.code, error["id"]) == (3, "DEVICE")
    assert "vcc compile demo" in error["hint"]
