"""LogEvents: what a program is told of its builds, through the logger `vcc`."""

from __future__ import annotations

import logging

from vcc.engine.events import BUILDING, Events, NullEvents

_log = logging.getLogger("vcc")


class LogEvents:
    """Notes to the logger `vcc`, and everything to another listener.

    A build is a warning, which programs show without any setting: it can take minutes. Other notes
    are of level info, stages of level debug.

    Args:
        listener: who is told too; None for nobody.
    """

    __slots__ = ("_listener",)

    def __init__(self, listener: Events | None = None) -> None:
        self._listener: Events = NullEvents() if listener is None else listener

    def stage_started(self, stage: str, total: int = 0) -> None:
        """Log at level debug and pass on."""
        _log.debug("%s begins", stage)
        self._listener.stage_started(stage, total)

    def stage_finished(self, stage: str, seconds: float) -> None:
        """Log at level debug and pass on."""
        _log.debug("%s: %.2f s", stage, seconds)
        self._listener.stage_finished(stage, seconds)

    def progress(self, item: str, state: str) -> None:
        """Pass on."""
        self._listener.progress(item, state)

    def note(self, reason: str) -> None:
        """Log at level info, that something is built at level warning, and pass on."""
        level = logging.WARNING if reason.startswith(BUILDING) else logging.INFO
        _log.log(level, "%s", reason)
        self._listener.note(reason)


def told_of(monitor: object) -> LogEvents:
    """The log, and a monitor where it hears events."""
    return LogEvents(monitor if isinstance(monitor, Events) else None)
