"""BatchTrace: one JSON line a step in a file (`--trace-batches`), and reading such a file back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from vcc.cache.errors import StorageError, UsageError
from vcc.cache.named_files import open_named
from vcc.engine.runtime.graph_stat import StepRecord

LONGEST_LINE = 4096
"""Bytes of a line; a longer one is none of ours."""


class BatchTrace:
    """A file that takes a line a step: each line whole and at once, so a reader may follow it.

    Args:
        file: made anew; what it held is gone.

    Raises:
        StorageError: it cannot be written.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._steps = file, 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        try:
            self._handle = os.open(file, flags, 0o644)
        except OSError as error:
            raise self._refused(error.strerror or str(error)) from error

    def write(self, record: StepRecord) -> None:
        """Add the next step.

        Raises:
            StorageError: the line could not be written whole, such as on a full disk.
        """
        line = json.dumps({"step": self._steps, **asdict(record)}, ensure_ascii=False) + "\n"
        data = line.encode("utf-8", "replace")
        try:
            written = os.write(self._handle, data)
        except OSError as error:
            raise self._refused(error.strerror or str(error)) from error
        if written != len(data):
            raise self._refused(f"{written} of {len(data)} bytes were taken")
        self._steps += 1

    def close(self) -> None:
        """Give the file back."""
        os.close(self._handle)

    def _refused(self, why: str) -> StorageError:
        return StorageError(
            f"cannot write the batch trace to {self._file}",
            why,
            "give --trace-batches a file in a folder that can be written",
        )


def read_trace(file: Path) -> Iterator[StepRecord]:
    """The steps of a trace, in order; a last line that is cut off is left out.

    Raises:
        UsageError: the file cannot be read, or a line is no step.
    """
    try:
        with open_named(file) as stream:
            lines = iter(lambda: stream.readline(LONGEST_LINE + 1), b"")
            for number, line in enumerate(lines, 1):
                if len(line) <= LONGEST_LINE and not line.endswith(b"\n"):
                    return
                yield _record(line.decode("utf-8"), f"{file}, line {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the batch trace {file}", str(error), _HINT) from error


_HINT = "vcc run MODEL --trace-batches FILE writes one"
_FIELDS = {
    "raw_tokens": int,
    "padded_tokens": int,
    "seqs": int,
    "mode": str,
    "reason": str,
}


def _record(line: str, place: str) -> StepRecord:
    try:
        found = json.loads(line) if len(line) <= LONGEST_LINE else None
    except (ValueError, RecursionError):
        found = None
    fields = found if isinstance(found, dict) else {}
    values = {name: fields.get(name) for name in _FIELDS}
    odd = [name for name, kind in _FIELDS.items() if type(values[name]) is not kind]
    if odd or any(isinstance(one, int) and one < 0 for one in values.values()):
        raise UsageError(f"{place} is no step of a batch trace", f"{line.strip()!r:.80}", _HINT)
    return StepRecord(**values)  # type: ignore[arg-type]
