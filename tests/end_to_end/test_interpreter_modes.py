"""A warm run under the interpreter's stricter modes (RELIABILITY 142)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RUN = ("run", "demo", "--prompt", "It is a truth", "--max-new-tokens", "8", "--require-warm")


@pytest.mark.parametrize(
    "flags",
    [
        ("-O",),  # asserts are gone
        ("-X", "dev", "-W", "error::ResourceWarning"),  # nothing is left open
    ],
    ids=" ".join,
)
def test_a_warm_run_answers_the_same(
    spawn: Callable[..., Any], demo_store: Path, flags: tuple[str, ...]
) -> None:
    plain, strict = spawn(*RUN, store=demo_store), spawn(*RUN, store=demo_store, flags=flags)
    assert (plain.code, strict.code) == (0, 0), strict.err
    assert strict.out == plain.out
    assert plain.out.strip()
    for word in ("Traceback", "ResourceWarning", "Exception ignored"):
        assert word not in strict.err
