"""The file of `vcc run --report`: there from the beginning, and written however the boot ends."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from vcc.cli.console import note

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vcc.cache.errors import StorageError, VccError
    from vcc.cli.ways import Report
    from vcc.engine.monitor import Ledger
    from vcc.engine.session import Session
    from vcc.engine.trail import WatchedEvents


class BootReport:
    """Writes the certificate of a boot when the block ends, also by an error, which goes on.

    Args:
        file: where to; None for nowhere.
        ledger: the account of the process.

    Attributes:
        watched, session, found: what there is of them when the block ends.
    """

    def __init__(self, file: Path | None, ledger: Ledger) -> None:
        self.watched: WatchedEvents | None = None
        self.session: Session | None = None
        self.found: Report | None = None
        self._file, self._ledger = file, ledger

    def __enter__(self) -> BootReport:
        """Say that a boot goes on: one that is killed must not leave the report of an earlier one.

        Raises:
            StorageError: the place cannot be written; nothing was booted for it.
        """
        if self._file is not None and not _is_stream(self._file):
            from vcc.engine.certificate import begun

            _write(self._file, begun())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        caught: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write it; a place that fails now hides no error of the run."""
        if self._file is None:
            return
        from vcc.cache.errors import StorageError
        from vcc.cli.main import as_vcc_error

        error = None if caught is None else as_vcc_error(caught)
        try:
            _write(self._file, self._certificate(error))
        except StorageError as trouble:
            if caught is None:
                raise
            note(str(trouble))

    def _certificate(self, error: VccError | None) -> Mapping[str, object]:
        from vcc.engine.certificate import certificate
        from vcc.engine.events import NullEvents
        from vcc.engine.trail import WatchedEvents

        return certificate(
            self._ledger,
            self.watched or WatchedEvents(NullEvents()),
            self.session,
            self.found,
            error,
            getattr(error, "explanation", None),
        )


def _is_stream(file: Path) -> bool:
    """Whether it takes one text after the other, such as /dev/stderr or a pipe."""
    return file.exists() and not file.is_file()


def _write(file: Path, value: Mapping[str, object]) -> None:
    """Whole or not at all, as far as the file is one."""
    text = json.dumps(value, indent=2) + "\n"
    try:
        if _is_stream(file):
            file.write_text(text, encoding="utf-8")
            return
        real = Path(os.path.realpath(file))  # a link stays a link
        part = real.with_name(f".{real.name}.{os.getpid()}")
        try:
            part.write_text(text, encoding="utf-8")
            os.replace(part, real)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise _trouble(file, error) from error


def _trouble(file: Path, error: OSError) -> StorageError:
    from vcc.cache.errors import StorageError

    return StorageError(
        f"cannot write the report to {file}", str(error), "give a file that this account can write"
    )
