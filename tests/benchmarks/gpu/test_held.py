"""Peers of the GPU benchmarks wait for their turn, and what goes wrong with them is told."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from held import Held

PEER = """
import json, sys, time
from pathlib import Path
folder = Path(sys.argv[-1])
if "fail" in sys.argv:
    sys.exit("no such luck")
if "late" in sys.argv:
    time.sleep(60)
(folder / "ready").touch()
while not (folder / "go").exists():
    time.sleep(0.01)
print(json.dumps({"way": "tried", "waited": True}))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "peer.py"
    file.write_text(PEER)
    return file


def held(script: Path, *words: str, seconds: float = 20) -> Held:
    one = Held.start(script.parent / "held", [script, *words], {})
    one.wait(time.monotonic() + seconds)
    return one


def test_a_peer_that_is_ready_times_when_it_is_its_turn(script: Path) -> None:
    one = held(script)
    assert one.process.poll() is None
    assert one.measured() == {"way": "tried", "waited": True}


def test_a_peer_that_fails_is_told_with_its_words(script: Path) -> None:
    assert "no such luck" in held(script, "fail").measured()["error"]


def test_a_peer_that_is_late_is_ended(script: Path) -> None:
    one = held(script, "late", seconds=0.2)
    assert one.measured() == {"error": "not compiled in time"}
    assert one.process.poll() is not None
