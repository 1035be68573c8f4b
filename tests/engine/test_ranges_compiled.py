"""Ranges by Inductor itself: every size answers as eager code does, from libraries of its range."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support.builds import MODEL
from support.flow import ask, built, kept_environment

from vcc.cache.store import Store
from vcc.engine.monitor import Counters
from vcc.engine.request import settle
from vcc.engine.session import Session, open_module_session

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")

FORMS = [
    pytest.param({"compile_sizes": [16]}, 2, id="exact"),
    pytest.param(
        {"compile_ranges": [8, 32], "compile_sizes": [16, 64]}, 5, id="p9", marks=pytest.mark.slow
    ),
]


@pytest.mark.parametrize(("config", "compiles"), FORMS)
def test_p9_every_size_answers_as_eager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], compiles: int
) -> None:
    """P9 and P10: so many compiles, then none; goldens of all of them hold."""
    (tmp_path / "small.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "small", raising=False)
    request = ask("small:make", config=json.dumps(config), inputs=("x=1-64x48",), jobs=2)
    store, cold, warm = Store.open(tmp_path / "store"), Counters(), Counters()
    built(request, store, cold)
    assert cold["compiles"] == compiles
    with kept_environment():
        session = Session(settle(request), store, "all", require_warm=True, counters=warm)
        forward = open_module_session(session).booted.forward
    assert not [note for note in session.notes if "not checked" in note], "goldens of every range"
    assert (warm["passes"], warm["compiles"], warm["restores"]) == (0, 0, compiles)
    import small

    model = small.make()
    for size in (1, 2, 8, 9, 15, 16, 17, 32, 33, 64):
        x = torch.randn(size, 48)
        found = [one.clone() for one in forward({"x": x}).values()]
        wanted = [one.detach() for one in model(x)]
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
