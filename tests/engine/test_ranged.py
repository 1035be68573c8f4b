"""Which size ranges are about, and which ranges a request has."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.builds import MODEL
from support.flow import ask

from vcc.engine.config.types import DimRange
from vcc.engine.models.shapes import parse_shapes
from vcc.engine.models.source import Source
from vcc.engine.ranged import range_name, ranged_size, ranges_of, size_of
from vcc.engine.request import settle


def ranges(ends: tuple[int, ...] = (), **options: Any) -> list[str]:
    config = options.pop("config", {})
    given = {"max_num_batched_tokens": 128, **options}
    request = ask(given.pop("model", "demo"), config=json.dumps(config), **given)
    return [range_name(one) for one in ranges_of(settle(request), ends)]


def test_a_decoders_size_is_its_tokens() -> None:
    found = size_of(settle(ask("demo", max_num_batched_tokens=128)))
    assert (found.input, found.dim, found.sizes) == ("input_ids", 0, DimRange(1, 128))


def test_end_points_of_passes_count_for_decoders() -> None:
    assert ranges((8, 200)) == ["1-8", "9-128"]
    assert ranges((8,), config={"compile_sizes": [16]}) == ["1-8", "9-128", "16-16"]
    assert ranges((8,), target="sm_90") == ["1-8", "9-128"]


@pytest.mark.parametrize(
    ("shapes", "place"),
    [
        (("x=1-64x48",), ("x", 0)),
        (("x=4x2-64", "y=8"), ("x", 1)),
        (("x=T@1-64x48", "y=T@1-64"), ("x", 0)),
        (("x=1-64x48", "y=1-64"), None),
        (("x=4x48",), None),
    ],
)
def test_a_modules_size_is_its_only_one_that_varies(
    shapes: tuple[str, ...], place: tuple[str, int] | None
) -> None:
    source = Source(kind="module", name="m", shapes=parse_shapes(shapes))
    found = ranged_size(source, 1)
    assert (None if found.sizes is None else (found.input, found.dim)) == place
    assert bool(found.why) is (place is None)


def test_a_module_has_ranges_where_somebody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "small", raising=False)
    module = {"model": "small:make", "inputs": ("x=1-64x48",)}
    assert ranges((8,), **module) == ["1-64"], "its inputs are no tokens"
    assert ranges((8,), config={"compile_ranges": [32]}, **module) == ["1-8", "9-32", "33-64"]
