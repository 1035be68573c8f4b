"""Patience: bounded attempts, waits and time."""

from __future__ import annotations

import time

import pytest

from vcc.cache.errors import RemoteError
from vcc.cache.remote.base import Absent, Denied, Passing
from vcc.cache.remote.patience import Limits, Patience

LIMITS = Limits(total_s=5, attempts=3, first_wait_s=0.001, longest_wait_s=0.2)


class Server:
    """Fails with the given errors, then answers."""

    def __init__(self, *errors):
        self.errors, self.asked = list(errors), 0

    def __call__(self):
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def test_a_passing_failure_is_tried_again():
    server = Server(Passing("busy"), Passing("busy"))
    assert Patience(LIMITS).ask("asking", server) == "answer"
    assert server.asked == 3


def test_attempts_end():
    server = Server(*[Passing("busy", "status 503")] * 9)
    with pytest.raises(RemoteError, match="status 503; tried 3 times"):
        Patience(LIMITS).ask("asking", server)
    assert server.asked == 3


@pytest.mark.parametrize("error", [RemoteError("no"), Denied("no"), Absent("no")])
def test_a_final_failure_is_not_tried_again(error):
    server = Server(error, error)
    with pytest.raises(type(error)):
        Patience(LIMITS).ask("asking", server)
    assert server.asked == 1


def test_a_server_is_waited_for_as_long_as_it_asks():
    begun = time.monotonic()
    Patience(LIMITS).ask("asking", Server(Passing("busy", after=0.15)))
    assert time.monotonic() - begun >= 0.15


def test_a_server_that_asks_for_too_long_is_not_waited_for():
    server = Server(Passing("busy", after=3600.0))
    begun = time.monotonic()
    with pytest.raises(RemoteError, match="asks to wait 3600 s"):
        Patience(LIMITS).ask("asking", server)
    assert server.asked == 1
    assert time.monotonic() - begun < 0.1


def test_time_ends_whatever_the_attempts():
    limits = Limits(total_s=0.2, attempts=1000, first_wait_s=0.05, longest_wait_s=0.05)
    begun = time.monotonic()
    with pytest.raises(RemoteError):
        Patience(limits).ask("asking", Server(*[Passing("busy")] * 1000))
    assert time.monotonic() - begun < 1.0


def test_used_up_time_is_never_negative():
    patience = Patience(LIMITS, begun=time.monotonic() - 100)
    assert patience.left_s == 0.0
    with pytest.raises(RemoteError, match="given up after 5 s"):
        patience.check("asking")
