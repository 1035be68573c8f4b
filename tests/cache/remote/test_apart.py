"""Work apart: its answer, its error, Ctrl-C, and an end to waiting."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from vcc.cache.remote.apart import apart


def test_the_answer_comes_back():
    assert apart(lambda: 7, 5.0) == 7


def test_an_error_comes_back_as_it_was():
    with pytest.raises(KeyError, match="x"):
        apart(lambda: {}["x"], 5.0)


def test_work_that_does_not_end_is_not_waited_for():
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        apart(lambda: time.sleep(60), 0.3)
    assert time.monotonic() - begun < 3


def test_an_interrupt_ends_the_wait_at_once():
    begun = time.monotonic()
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        apart(lambda: time.sleep(60), 50.0)
    assert time.monotonic() - begun < 5
