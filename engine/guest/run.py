"""One run of a guest: its caches put in place, the program run, what is new taken back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from vcc.cache.errors import MissingArtifact, StorageError
from vcc.cache.store import Store
from vcc.engine.config.environment import guest_environment
from vcc.engine.guest.child import run_child
from vcc.engine.guest.command import Command
from vcc.engine.guest.files import KINDS, counted, shows_reads, was_read
from vcc.engine.guest.folder import private_folder
from vcc.engine.guest.identity import Identity
from vcc.engine.guest.restore import Restored, pickle_gate, restore
from vcc.engine.guest.save import Bounds, Saved, save


@dataclass(frozen=True, slots=True)
class Guest:
    """What to run and how.

    Attributes:
        command, identity: the program, and the request of its caches.
        store: where they are.
        bounds: when they are stored.
        fresh: begin with empty caches.
        require_warm: without stored caches the program is not started.
        told: hears of what a user should know, a line each.
    """

    command: Command
    identity: Identity
    store: Store
    bounds: Bounds
    fresh: bool = False
    require_warm: bool = False
    told: Callable[[str], None] = lambda line: None


@dataclass(frozen=True, slots=True)
class GuestReport:
    """What came of a run.

    Attributes:
        guest: what was run.
        code: its exit code.
        restored, saved: what was put in place, what was taken back.
        used: restored files that were read, by path; None where the file system does not tell.
        seconds: of the parts: restore, run, save.
    """

    guest: Guest
    code: int
    restored: Restored
    saved: Saved
    used: frozenset[str] | None
    seconds: Mapping[str, float]

    def kinds(self) -> list[dict[str, object]]:
        """Of each kind: files that were restored, that were used, and that the guest made."""
        had, made = counted(self.restored.files), counted(self.saved.made)
        used = None if self.used is None else counted(self.used)
        rows = ((name, had[name], used and used[name], made[name]) for name, _ in KINDS)
        return [
            {"kind": name, "restored": restored, "used": read, "made": new}
            for name, restored, read, new in rows
            if restored or new
        ]

    def as_dict(self) -> dict[str, object]:
        """The JSON of `--report`."""
        restored, saved = self.restored, self.saved
        return {
            "report": "vcc guest",
            "version": 1,
            "name": self.guest.identity.fields["guest.name"],
            "program": self.guest.command.program,
            "interpreter": self.guest.command.interpreter,
            "interpreter_assumed": self.guest.command.assumed,
            "exit": self.code,
            "request": dict(self.guest.identity.fields),
            "restored": {
                "artifact": None if restored.entry is None else restored.entry.artifact,
                "tier": restored.tier,
                "trust": restored.trust,
                "files": len(restored.files),
                "bytes_verified": restored.verified,
                "why": restored.why,
                "misses": [{"artifact": one, "why": why} for one, why in restored.misses],
            },
            "kinds": self.kinds(),
            "made": [asdict(one) for one in self.saved.made.values()],
            "saved": {
                "artifact": None if saved.entry is None else saved.entry.artifact,
                "bytes": saved.size,
                "left_out": saved.left_out,
                "why": saved.why,
            },
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
        }


def run_guest(guest: Guest) -> GuestReport:
    """Run a program with its caches.

    Trouble with the store or the temporary folder costs the caches, not the run, unless strict.

    Raises:
        MissingArtifact: nothing could be restored and `require_warm` was asked for.
        UsageError: the program cannot be started.
        StorageError, Untrusted: with a strict store, or a policy that fails closed.
    """
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(private_folder()).path
        except OSError as error:
            return _without(guest, error)
        return _run(guest, folder)


def _without(guest: Guest, error: OSError) -> GuestReport:
    """Without a folder of its own the program runs as it would without vcc."""
    trouble = StorageError(
        "cannot make a folder for the caches", str(error), "TMPDIR names another place"
    )
    if guest.store.strict:
        raise trouble
    guest.told(f"{trouble}; the program runs without its caches")
    started = time.monotonic()
    code = run_child(guest.command.program, guest.command.words, guest_environment(None)[0])
    why, spent = str(trouble), {"run": time.monotonic() - started}
    return GuestReport(guest, code, Restored(why=why), Saved({}, why=why), None, spent)


def _run(guest: Guest, folder: Path) -> GuestReport:
    store, begun = pickle_gate(guest.store), time.monotonic()
    if guest.fresh:
        before = Restored(why="--fresh")
    else:
        before = restore(store, guest.identity, folder, guest.told)
    if guest.require_warm and before.entry is None:
        raise MissingArtifact(
            f"no caches of {guest.identity.fields['guest.name']}",
            before.why,
            "run it once without --require-warm, or --name the run that made them",
        )
    environment, replaced = guest_environment(folder)
    if replaced:
        guest.told(f"{' and '.join(replaced)} set to a private folder of this run")
    shows, started = shows_reads(folder), time.monotonic()
    code = run_child(guest.command.program, guest.command.words, environment)
    ended = time.monotonic()
    used = frozenset(path for path in before.files if was_read(folder, path)) if shows else None
    saved = save(store, guest.identity, folder, before, code, guest.bounds)
    parts = {"restore": started - begun, "run": ended - started, "save": time.monotonic() - ended}
    return GuestReport(guest, code, before, saved, used, parts)
