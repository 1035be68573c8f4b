"""The errors of vcc: each says what, why and a hint, and has a stable id and exit code."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class Exit(IntEnum):
    """Exit codes of every command; they never change meaning."""

    OK = 0
    NEGATIVE = 1
    USAGE = 2
    DEVICE = 3
    REMOTE = 4
    STORAGE = 5
    LOCK = 6
    INTEGRITY = 7
    COMPILE = 8
    GRAPH = 9
    PARTIAL = 10
    INTERNAL = 70
    INTERRUPTED = 130
    TERMINATED = 143


class VccError(Exception):
    """An error a user can act on.

    Args:
        what: what could not be done, one line without a trailing period.
        why: the cause, as exact as it is known.
        hint: the next step for the reader; empty when there is none.
    """

    exit: ClassVar[Exit] = Exit.INTERNAL
    id: ClassVar[str] = "INTERNAL"

    def __init__(self, what: str, why: str = "", hint: str = "") -> None:
        super().__init__(what, why, hint)
        self.what, self.why, self.hint = what, why, hint

    def __str__(self) -> str:
        return ": ".join(part for part in (self.what, self.why) if part)

    def as_dict(self) -> dict[str, object]:
        """The same content for `--json`."""
        return {
            "id": self.id,
            "exit": int(self.exit),
            "what": self.what,
            "why": self.why,
            "hint": self.hint,
        }


class UsageError(VccError, ValueError):
    """The command or its values make no sense."""

    exit, id = Exit.USAGE, "USAGE"


class ConfigError(UsageError):
    """A configuration value is unknown, contradictory or out of range."""

    id = "CONFIG"


class ModelError(UsageError):
    """The model is missing, incomplete, unsupported or disagrees with its config."""

    id = "MODEL"


class MissingArtifact(VccError, KeyError):
    """No artifact answers the request."""

    exit, id = Exit.NEGATIVE, "MISSING_ARTIFACT"
    __str__ = VccError.__str__


class DeviceError(VccError):
    """No device, toolchain or instruction set that can do this."""

    exit, id = Exit.DEVICE, "DEVICE"


class DeviceShortage(DeviceError):
    """The device has too little free memory now; the same call may succeed later."""


class RemoteError(VccError):
    """A remote cannot be reached, refuses, or answers with something else than was asked for."""

    exit, id = Exit.REMOTE, "REMOTE"


class StorageError(VccError):
    """The store cannot be read or written."""

    exit, id = Exit.STORAGE, "STORAGE"


class LockTimeout(VccError, TimeoutError):
    """Another process holds the lock for longer than we wait."""

    exit, id = Exit.LOCK, "LOCK_TIMEOUT"


class IntegrityError(VccError):
    """Stored bytes are not what their digest says, or break the format."""

    exit, id = Exit.INTEGRITY, "INTEGRITY"


class CompileError(VccError):
    """Tracing, a pass, partitioning or compiling failed."""

    exit, id = Exit.COMPILE, "COMPILE"


class GraphError(VccError, RuntimeError):
    """A static graph could not be captured, built or replayed."""

    exit, id = Exit.GRAPH, "GRAPH"


def quoted(error: BaseException, most: int = 1500) -> str:
    """Kind and words of somebody else's error, at most so many characters of them.

    A compiler's error begins with a command that can be long and ends with what was wrong: of a
    text that is too long the middle is left out.
    """
    text, half = str(error).strip(), most // 2
    words = text if len(text) <= most else f"{text[:half]}\n…\n{text[-half:]}"
    return f"{type(error).__name__}: {words}"
