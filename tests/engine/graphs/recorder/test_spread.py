"""Two captures of one process differ in every address that dead memory can hold.

Forks of one process have one layout, so nothing here depends on how the kernel places programs.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest

from vcc.engine import native
from vcc.engine.graphs.recorder import spread
from vcc.engine.graphs.recorder.addresses import AGAIN, ANYWHERE, FIRST, NAMES, SECOND

PROGRAM = """
import json, os, resource, sys, time
from vcc.engine.graphs.recorder.spread import on_spread_stack, spread_process

def look():
    blocks = [bytes(size) for size in (100, 300, 600, 4000, 30000, 100000, 1 << 20, 64 << 20)]
    mappings = len(open("/proc/self/maps").readlines())
    found = [*map(id, blocks), mappings]
    os.write(answer, json.dumps(found).encode() + b"\\n")
    os.read(go, 1)

def stack_of(child):
    for _ in range(1000):
        words = open(f"/proc/{child}/syscall").read().split()
        if len(words) == 9 and words[0] != "-1":
            return int(words[7], 16)
        time.sleep(0.005)
    return 0

if sys.argv[1] == "without a limit":
    resource.setrlimit(resource.RLIMIT_STACK, (resource.RLIM_INFINITY,) * 2)
    os.execv(sys.executable, [*sys.orig_argv[:3], "as it is", *sys.argv[2:]])
found = {}
for turn, name in enumerate(sys.argv[2:]):
    read, answer = os.pipe()
    go, wake = os.pipe()
    child = os.fork()
    if child == 0:
        spread_process(name)
        on_spread_stack(name, look)
        os._exit(0)
    os.close(answer)
    *addresses, mappings = json.loads(os.fdopen(read).readline())
    try:
        stack = stack_of(child)
    except OSError:
        stack = 0
    os.write(wake, b".")
    os.waitpid(child, 0)
    found[turn] = [*addresses, stack, mappings]
print(json.dumps(list(found.values())))
"""

WHAT = (
    *("object of 133 bytes", "object of 333 bytes", "block of 600 bytes", "block of 4000 bytes"),
    *("block of 30000 bytes", "block of 100000 bytes", "mapping of 1 MiB", "mapping of 64 MiB"),
    "stack",
)


STACKS = ("as it is", "without a limit")
"""With no limit on the stack, the kernel places mappings below the heap and not towards it."""

MOST_MAPPINGS = 1000
"""The kernel allows 65,530; a process with torch and CUDA has several hundred."""


@pytest.fixture(scope="module", params=STACKS)
def captures(request: pytest.FixtureRequest) -> dict[str, list[int]]:
    """Addresses of new things in forks of one process, spread as each capture is."""
    if native.library("vcc_abi") is None:
        pytest.skip("built without a compiler")
    if request.param != STACKS[0]:
        need_no_hard_limit(resource.RLIMIT_STACK)
    names = [*NAMES, FIRST]
    command = [sys.executable, "-c", PROGRAM, request.param, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return dict(zip((*NAMES, "first once more"), json.loads(done.stdout), strict=True))


def need_no_hard_limit(limit: int) -> None:
    if resource.getrlimit(limit)[1] != resource.RLIM_INFINITY:
        pytest.skip("this process may not lift its limit")


def test_spreading_takes_few_mappings(captures: dict[str, list[int]]) -> None:
    """Blocks that malloc maps are no blocks of the heap, wherever they lie."""
    assert all(0 < row[-1] < MOST_MAPPINGS for row in captures.values())


LIMITED = """
import resource, sys
from vcc.cache.errors import DeviceError
from vcc.engine.graphs.recorder.spread import spread_process

limit, field = getattr(resource, sys.argv[1]), sys.argv[2]
lines = dict(line.split(":") for line in open("/proc/self/status"))
used = int(lines[field].split()[0]) << 10
resource.setrlimit(limit, (used + (8 << 20), resource.RLIM_INFINITY))
try:
    spread_process("first")
except DeviceError as error:
    print(error.what, "|", error.hint)
"""


@pytest.mark.parametrize(
    ("limit", "field", "says"),
    [
        ("RLIMIT_DATA", "VmData", "the recorder has no memory | record without limits on memory"),
        ("RLIMIT_AS", "VmSize", "the recorder cannot have the addresses it needs | record without"),
    ],
)
def test_a_limit_of_the_process_is_named(limit: str, field: str, says: str) -> None:
    if native.library("vcc_abi") is None:
        pytest.skip("built without a compiler")
    command = [sys.executable, "-c", LIMITED, limit, field]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(says), done.stdout


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
