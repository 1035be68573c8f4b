"""The native player when something goes wrong: every driver call, sleep, faults, forks, users."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress

import numpy as np
import pytest
from support.fake_cuda import Fake
from support.fake_cuda.fixtures import RawArena
from support.player_case import decode_call, full, launched, pieces, plain, playing
from support.step_tables import toy_step

from vcc.cache.errors import DeviceError, GraphError, UsageError
from vcc.engine.runtime.player.handle import Inputs, Parts, PlayerHandle, Read

DECODING = Parts.UNIFORM | Parts.SAMPLE | Parts.ADVANCE


def whole_life(arena: RawArena) -> None:
    """Open, build, step in every mode, decode, close."""
    with playing(arena, toy_step(split_k=2)) as handle:
        handle.build([full(2, 2, DECODING), pieces(4, 4)], 2, 0)
        for shape in (plain(3, 2), full(2, 2, DECODING), pieces(4, 4)):
            slot, everything = handle.slot(), Inputs.STEP | Inputs.SAMPLING | Inputs.TOKEN
            handle.step(shape, 2, slot, everything, Read.LOGITS | Read.TOKENS)
        assert handle.decode(full(2, 2, DECODING), decode_call(handle, 2, 3)) == 3
        counts = handle.graphs()
        if counts.failed:
            raise DeviceError("a graph failed", counts.failure)


def calls_of_a_life(fake: Fake, arena: RawArena) -> int:
    whole_life(arena)
    arena.trim()
    fake.clear()
    whole_life(arena)
    return fake.count()


def test_each_driver_call_may_fail_and_nothing_leaks(fake: Fake, arena: RawArena) -> None:
    """Out of memory at every call in turn: an error of the device, which says nothing against the
    artifact; then everything works as before."""
    calls = calls_of_a_life(fake, arena)
    assert calls > 100
    before = arena.stats()["live"]
    for nth in range(1, calls + 1):
        fake.clear()
        fake.fail("*", nth)
        with suppress(DeviceError):
            whole_life(arena)
        fake.clear()
        assert arena.stats()["live"] == before, nth
        arena.trim()
    fake.clear()
    whole_life(arena)
    assert fake.count() == calls


def test_a_step_after_discard_is_refused_until_the_weights_are_back(
    fake: Fake, arena: RawArena
) -> None:
    with playing(arena) as handle:
        wanted = launched(fake, handle, plain(2, 2))
        arena.discard("weights")
        with pytest.raises(GraphError) as refused:
            launched(fake, handle, plain(2, 2))
        assert "weights" in str(refused.value)
        assert refused.value.hint
        with pytest.raises(GraphError):
            handle.decode(plain(2, 2, DECODING), decode_call(handle, 2, 1))
        arena.wake("")
        with pytest.raises(GraphError):
            launched(fake, handle, plain(2, 2))
        arena.mark_filled("weights")
        assert launched(fake, handle, plain(2, 2)) == wanted


def test_graphs_outlive_sleep_at_the_same_addresses(fake: Fake, arena: RawArena) -> None:
    with playing(arena) as handle:
        handle.build([full(2, 2)], 1, 0)
        wanted = launched(fake, handle, full(2, 2))
        arena.sleep(1, "")
        with pytest.raises(GraphError):
            launched(fake, handle, full(2, 2))
        arena.wake("")
        assert launched(fake, handle, full(2, 2)) == wanted


def test_a_kernel_fault_loses_the_device_and_nothing_is_written_afterwards(
    fake: Fake, arena: RawArena
) -> None:
    with playing(arena) as handle:
        launched(fake, handle, plain(2, 2))
        slot = handle.slot()
        fake.fault(700)
        with pytest.raises(DeviceError, match="ILLEGAL_ADDRESS") as told:
            handle.step(plain(2, 2), 2, slot, Inputs.STEP, Read.LOGITS)
        assert "new process" in told.value.hint
        fake.clear()
        for again in (
            lambda: handle.step(plain(2, 2), 2, slot, Inputs.STEP, Read.LOGITS),
            lambda: handle.slot(),
            lambda: handle.wait(),
        ):
            with pytest.raises(DeviceError, match="lost"):
                again()
        assert fake.count("cuMemcpyHtoDAsync") == fake.count("cuLaunchKernel") == 0


FORK = """
import os, sys
sys.path.insert(0, {tests!r})
from support.fake_cuda import Fake
from support.fake_cuda.fixtures import DEVICE, RawArena
from support.player_case import plain, playing
from vcc.cache.errors import DeviceError
from vcc.engine.runtime.player.handle import Inputs, Read
fake = Fake()
arena = RawArena(DEVICE.vcc_device_open(fake.path, 0))
with playing(arena) as handle:
    slot = handle.slot()
    if os.fork() == 0:
        try:
            handle.step(plain(2, 2), 1, slot, Inputs.STEP, Read.NOTHING)
        except DeviceError as error:
            print(error, error.hint, flush=True)
            os._exit(0 if "fork" in str(error) else 1)
        os._exit(2)
    _, status = os.wait()
    handle.step(plain(2, 2), 1, slot, Inputs.STEP, Read.NOTHING)
    sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_child_is_refused_and_the_parent_goes_on() -> None:
    tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    words = [sys.executable, "-c", FORK.format(tests=tests)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_call_at_a_time(arena: RawArena) -> None:
    with playing(arena) as handle:
        control = np.zeros(2, np.int64)
        call = decode_call(handle, 1, 16, control=control)
        refused: list[BaseException] = []

        def pester() -> None:
            for _ in range(200):
                try:
                    handle.wait()
                except UsageError as error:
                    refused.append(error)

        thread = threading.Thread(target=pester)
        thread.start()
        for _ in range(50):
            try:
                handle.decode(plain(1, 1, DECODING), call)
            except UsageError as error:
                refused.append(error)
        thread.join()
        assert all("running already" in str(error) for error in refused)
        handle.wait()


def test_a_closed_player_is_no_player(arena: RawArena) -> None:
    handle = PlayerHandle(arena.handle, toy_step().data)
    handle.close()
    handle.close()
    with pytest.raises(UsageError, match="no such player"):
        handle.wait()
