"""The native decode loop on the libcuda double, whose kernels do nothing: bookkeeping only."""

from __future__ import annotations

import gc
import resource
import threading
from pathlib import Path

import numpy as np
import pytest
from support.fake_cuda import Fake
from support.fake_cuda.fixtures import RawArena
from support.player_case import RING, decode_call, full, plain, playing, read, write

from vcc.cache.errors import DeviceError, VccError
from vcc.engine.runtime.player.handle import Parts, PlayerHandle, Shape
from vcc.engine.runtime.player.layout import Layout

STEP = Parts.UNIFORM | Parts.SAMPLE | Parts.ADVANCE


def ready(handle: PlayerHandle, slot: int, tokens: list[int]) -> Layout:
    """A layout, and a slot in which every sequence is active at these tokens."""
    layout = Layout.read(handle.describe())
    layout.array(slot, "active")[: len(tokens)] = 1
    layout.array(slot, "token")[: len(tokens)] = tokens
    return layout


def test_tokens_land_in_rows_and_are_counted(fake: Fake, arena: RawArena) -> None:
    with playing(arena) as handle:
        call = decode_call(handle, 3, 5)
        layout = ready(handle, call.slot, [7, 8, 9])
        assert handle.decode(plain(3, 3, STEP), call) == 5
        assert layout.tokens()[:5, :3].tolist() == [[7, 8, 9]] * 5
        assert call.control.tolist() == [0, 5]
        assert (call.gaps[:3] > 0).all()
        assert call.gaps[4] == 0
        assert fake.count("cuMemcpyDtoHAsync") == 5


def test_a_graph_is_launched_once_a_step(fake: Fake, arena: RawArena) -> None:
    with playing(arena) as handle:
        handle.build([full(4, 4, STEP)], 1, 0)
        call = decode_call(handle, 3, 6)
        ready(handle, call.slot, [1, 2, 3])
        fake.clear()
        assert handle.decode(full(4, 4, STEP), call) == 6
        assert fake.count("cuGraphLaunch") == 6
        assert fake.count("cuLaunchKernel") == 0


def stops(*ids: list[int]) -> dict[str, np.ndarray]:
    flat = [token for one in ids for token in one] or [0]
    return {
        "stops": np.array(flat, np.int32),
        "stop_start": np.cumsum([0, *map(len, ids)], dtype=np.int32),
    }


def test_a_run_ends_when_all_sequences_have(arena: RawArena) -> None:
    with playing(arena) as handle:
        call = decode_call(handle, 2, 8, **stops([5, 7], [8]))
        ready(handle, call.slot, [7, 8])
        assert handle.decode(plain(2, 2, STEP), call) == 1


def test_one_ended_sequence_is_told_to_the_device_and_the_others_go_on(arena: RawArena) -> None:
    with playing(arena) as handle:
        call = decode_call(handle, 2, 4, **stops([7], []))
        layout = ready(handle, call.slot, [7, 8])
        assert handle.decode(plain(2, 2, STEP), call) == 4
        assert read(handle, layout, "active", 2) == [0, 1]


def test_words_of_nan_are_handed_on_and_stop_as_their_tokens_do(arena: RawArena) -> None:
    """-1 - id: a token from logits without a largest one; -1, of token 0, ends nothing else."""
    with playing(arena) as handle:
        call = decode_call(handle, 3, 4, **stops([7], [1], []))
        layout = ready(handle, call.slot, [-1 - 7, -1, -1 - 8])
        assert handle.decode(plain(3, 3, STEP), call) == 4
        assert layout.tokens()[:4, :3].tolist() == [[-8, -1, -9]] * 4
        assert read(handle, layout, "active", 3) == [0, 1, 1]


def test_a_run_ends_at_the_first_when_others_wait(arena: RawArena) -> None:
    with playing(arena) as handle:
        call = decode_call(handle, 2, 4, finish=1, **stops([7], []))
        ready(handle, call.slot, [7, 8])
        assert handle.decode(plain(2, 2, STEP), call) == 1


def test_a_stop_from_outside_ends_the_run(arena: RawArena) -> None:
    with playing(arena) as handle:
        call = decode_call(handle, 1, RING)
        call.control[0] = 1
        ready(handle, call.slot, [3])
        assert handle.decode(plain(1, 1, STEP), call) == 1


def test_a_run_that_goes_on_sends_changed_rows_alone(fake: Fake, arena: RawArena) -> None:
    with playing(arena) as handle:
        call = decode_call(handle, 3, 2)
        layout = ready(handle, call.slot, [1, 2, 3])
        table = layout.array(call.slot, "block_table").reshape(-1, 4)
        table[:3] = 1
        handle.decode(plain(3, 3, STEP), call)
        write(handle, layout, "token", [4, 5, 6])
        more = decode_call(handle, 3, 2, changed=np.array([1], np.int32))
        table = layout.array(more.slot, "block_table").reshape(-1, 4)
        table[:3] = 2
        layout.array(more.slot, "token")[:3] = 9  # not sent
        fake.clear()
        handle.decode(plain(3, 3, STEP), more)
        assert fake.count("cuMemcpyHtoDAsync") == 1
        assert read(handle, layout, "block_table", 12) == [1] * 4 + [2] * 4 + [1] * 4
        assert layout.tokens()[1, :3].tolist() == [4, 5, 6]


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_nothing_is_launched_beyond_the_last_step(fake: Fake, arena: RawArena, ahead: int) -> None:
    with playing(arena) as handle:
        call = decode_call(handle, 1, 4, ahead=ahead)
        ready(handle, call.slot, [1])
        fake.clear()
        assert handle.decode(plain(1, 1, STEP), call) == 4
        assert fake.count("cuMemcpyDtoHAsync") == 4


def test_runs_longer_than_the_ring_are_refused(arena: RawArena) -> None:
    with playing(arena) as handle, pytest.raises(VccError):
        handle.decode(plain(1, 1, STEP), decode_call(handle, 1, RING + 1))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [full(4, 4, STEP), plain(4, 4, STEP)], ids=["graph", "plain"])
def test_a_million_replays_leave_nothing_behind(fake: Fake, arena: RawArena, shape: Shape) -> None:
    """Memory of device and process are after the last run what they were after the first ones."""
    steps, runs = 1 << 14, 62
    with playing(arena, ring=steps) as handle:
        handle.build([full(4, 4, STEP)], 1, 0)
        seen = []
        for run in range(runs):
            call = decode_call(handle, 4, steps)
            ready(handle, call.slot, [1, 2, 3, 4])
            assert handle.decode(shape, call) == steps
            fake.clear()
            if run in (4, runs - 1):
                gc.collect()
                seen.append((arena.stats()["mapped"], resident()))
        (mapped, before), (after, last) = seen
        assert after == mapped
        assert last - before < 8 << 20


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_a_fault_in_the_loop_is_told(fake: Fake, arena: RawArena) -> None:
    with playing(arena) as handle:
        call = decode_call(handle, 1, 4)
        ready(handle, call.slot, [1])
        fake.fault(719)
        with pytest.raises(DeviceError, match="LAUNCH_FAILED"):
            handle.decode(plain(1, 1, STEP), call)
        assert call.control[1] == 0


def test_the_interpreter_runs_while_the_device_decodes(arena: RawArena) -> None:
    """The loop holds no interpreter lock: this thread sees it under way."""
    with playing(arena) as handle:
        call = decode_call(handle, 1, RING)
        ready(handle, call.slot, [1])
        thread = threading.Thread(target=lambda: handle.decode(plain(1, 1, STEP), call))
        thread.start()
        while not call.control[1] and thread.is_alive():
            pass
        call.control[0] = 1
        thread.join()
        assert 1 <= call.control[1] <= RING
