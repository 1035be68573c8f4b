"""Two captures of one process differ in every address that dead memory can hold.

Forks of one process have one layout, so nothing here depends on how the kernel places programs.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from vcc.engine import native
from vcc.engine.graphs.recorder import spread
from vcc.engine.graphs.recorder.addresses import AGAIN, ANYWHERE, FIRST, NAMES, SECOND

PROGRAM = """
import json, os, sys, time
from vcc.engine.graphs.recorder.spread import on_spread_stack, spread_process

def look():
    blocks = [bytes(size) for size in (100, 300, 600, 4000, 30000, 100000, 1 << 20, 64 << 20)]
    os.write(answer, json.dumps([id(block) for block in blocks]).encode() + b"\\n")
    os.read(go, 1)

def stack_of(child):
    for _ in range(1000):
        words = open(f"/proc/{child}/syscall").read().split()
        if len(words) == 9 and words[0] != "-1":
            return int(words[7], 16)
        time.sleep(0.005)
    return 0

found = {}
for turn, name in enumerate(sys.argv[1:]):
    read, answer = os.pipe()
    go, wake = os.pipe()
    child = os.fork()
    if child == 0:
        spread_process(name)
        on_spread_stack(name, look)
        os._exit(0)
    os.close(answer)
    addresses = json.loads(os.fdopen(read).readline())
    try:
        stack = stack_of(child)
    except OSError:
        stack = 0
    os.write(wake, b".")
    os.waitpid(child, 0)
    found[turn] = addresses + [stack]
print(json.dumps(list(found.values())))
"""

WHAT = (
    *("object of 133 bytes", "object of 333 bytes", "block of 600 bytes", "block of 4000 bytes"),
    *("block of 30000 bytes", "block of 100000 bytes", "mapping of 1 MiB", "mapping of 64 MiB"),
    "stack",
)


@pytest.fixture(scope="module")
def captures() -> dict[str, list[int]]:
    """Addresses of new things in forks of one process, spread as each capture is."""
    if native.library("vcc_abi") is None:
        pytest.skip("built without a compiler")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *NAMES, FIRST], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(zip((*NAMES, "first once more"), json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("index", range(len(WHAT)), ids=WHAT)
def test_everything_new_lies_elsewhere_in_the_third_capture(
    captures: dict[str, list[int]], index: int
) -> None:
    first, second, again = (captures[name][index] for name in NAMES)
    if not first:
        pytest.skip("the stack of another process cannot be seen here")
    assert again not in (first, second)
    # What is left where a number of one or two bytes is written over the address differs too.
    assert first >> 8 != again >> 8
    assert first >> 16 != again >> 16


@pytest.mark.parametrize("index", range(len(WHAT)), ids=WHAT)
def test_one_capture_is_spread_alike_each_time(captures: dict[str, list[int]], index: int) -> None:
    """To the page: what the process did between its forks moves blocks of its heap."""
    one, other = captures[FIRST][index], captures["first once more"][index]
    assert abs(one - other) < 1 << 16


def test_every_byte_of_a_distance_shows() -> None:
    """Neither 0 nor 255, so that no byte of an address is the same that much further on."""
    far = spread.SPREADS[FIRST]
    for distance, unit in ((far.heap, 16), (far.mapped, 4096), (far.device, 2 << 20)):
        assert distance % unit == 0
        shown = distance.to_bytes(8, "little").rstrip(b"\0")[unit.bit_length() // 8 :]
        assert all(0 < byte < 255 for byte in shown)
        assert len(shown) >= 3


def test_only_places_differ_between_the_first_capture_and_the_second() -> None:
    assert spread.SPREADS[FIRST] == spread.SPREADS[SECOND] != spread.SPREADS[AGAIN]


def test_a_task_on_a_spread_stack_answers_and_fails_as_itself() -> None:
    assert spread.on_spread_stack(FIRST, lambda: 7) == 7
    with pytest.raises(StopIteration):
        spread.on_spread_stack(FIRST, lambda: next(iter(())))
    with pytest.raises(ValueError, match="the model failed"):
        spread.on_spread_stack(FIRST, _failing)


def _failing() -> None:
    raise ValueError("the model failed")


def test_the_device_is_spread_behind_the_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    kept: list[int] = []
    monkeypatch.setattr(spread, "reserve", lambda *wish: asked.append(wish))
    monkeypatch.setattr(spread, "DeviceBytes", kept.append)
    for name in (AGAIN, FIRST):
        assert (asked, kept) == ([], [])
        spread.spread_device(name)
    assert asked == [(ANYWHERE, spread.FAR.device)]
    assert tuple(kept) == spread.FAR.blocks
