"""Adapters of a booted model: loaded and unloaded by name, and given slots as batches need them.

A slot is a row of the stacked matrices. Code reads all of them and knows no adapter: to load one
writes the values of a slot, and nothing is built anew. Torch-free.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

from vcc.cache.errors import ModelError, UsageError
from vcc.engine.models.decoder_spec import DecoderSpec
from vcc.engine.models.lora.adapter import Adapter, open_adapter
from vcc.engine.models.lora.spec import NO_SLOT, LoraSpec, projections
from vcc.engine.monitor import Counters
from vcc.engine.runtime.no_adapters import AdapterUnreadable

Write = Callable[[int, Adapter | None], None]
"""Puts an adapter into a slot; None clears it."""

LONGEST_NAME = 200


class User(Protocol):
    """Whoever has requests under way."""

    def loras(self) -> Collection[str]:
        """Names of the adapters of its requests."""


class Adapters:
    """The adapters of one model.

    Args:
        spec: the decoder.
        lora: what its code was compiled for.
        write: writes a slot; no step may be under way then.
        counters: told of every adapter that is loaded, and of every slot that is written.
    """

    def __init__(self, spec: DecoderSpec, lora: LoraSpec, write: Write, counters: Counters) -> None:
        self.lora, self._write, self._counters = lora, write, counters
        self._places = projections(spec, lora)
        self._loaded: dict[str, Adapter] = {}
        self._slots: dict[str, int] = {}  # in the order of their last use
        self._users: WeakSet[User] = WeakSet()

    @property
    def names(self) -> tuple[str, ...]:
        """Of the adapters that are loaded."""
        return tuple(self._loaded)

    def load(self, name: str, directory: Path) -> None:
        """Read an adapter, and write it to a slot that is free; without one it waits for its use.

        Raises:
            UsageError: the name is taken or cannot be one, or a step is under way.
            ModelError: the adapter is malformed, not supported, or does not fit.
        """
        _check_name(name)
        if name in self._loaded:
            raise UsageError(
                f"adapter {name} is loaded already",
                f"it is of {self._loaded[name].directory}",
                "unload it first, or give another name",
            )
        adapter = open_adapter(directory, self._places, self.lora)
        if (slot := self._free()) is not None:
            self._put(slot, name, adapter)
        self._loaded[name] = adapter
        self._counters.add("adapters")

    def unload(self, name: str) -> None:
        """Forget an adapter and clear its slot.

        Raises:
            UsageError: no such adapter, it has requests under way, or a step is under way.
        """
        self.check(name)
        if any(name in user.loras() for user in self._users):
            raise UsageError(
                f"adapter {name} is in use", "requests with it are under way", "let them end first"
            )
        if name in self._slots:
            self._write(self._slots[name], None)
            self._counters.add("adapter_slots")
            del self._slots[name]
        del self._loaded[name]

    def rewrite(self) -> None:
        """Write every slot again, after their memory was lost.

        An adapter that cannot be read gives its slot up; its next use says why.
        """
        for name, slot in list(self._slots.items()):
            del self._slots[name]
            with suppress(AdapterUnreadable):
                self._put(slot, name, self._loaded[name])

    def check(self, name: str) -> None:
        """Raise UsageError for a name that no loaded adapter has."""
        if name not in self._loaded:
            known = ", ".join(self._loaded) or "none"
            raise UsageError(f"no adapter called {name!r:.60}", f"loaded: {known}", "load it first")

    def watch(self, user: User) -> None:
        """Let no adapter of these requests be unloaded, as long as `user` lives."""
        self._users.add(user)

    def slots_for(self, names: Iterable[str]) -> Mapping[str, int]:
        """The slot of each of these adapters, "" being none; those without one are written.

        The least recently used of the others make room.

        Raises:
            UsageError: more adapters than slots, or one that is not loaded.
            AdapterUnreadable: the file of one is not as it was loaded; it has no slot then.
        """
        wanted = dict.fromkeys(name for name in names if name)
        if len(wanted) > self.lora.slots:
            raise UsageError(
                f"a step cannot hold {len(wanted)} adapters",
                f"the code was compiled for {self.lora.slots}",
                f"compile with --max-loras {len(wanted)}",
            )
        for name in wanted:
            self.check(name)
            if name in self._slots:
                self._slots[name] = self._slots.pop(name)
        for name in wanted:
            if name not in self._slots:
                self._put(self._room(wanted), name, self._loaded[name])
        return {"": NO_SLOT} | {name: self._slots[name] for name in wanted}

    def _put(self, slot: int, name: str, adapter: Adapter) -> None:
        try:
            self._write(slot, adapter)
        except ModelError as error:
            raise AdapterUnreadable(name, error) from error
        self._counters.add("adapter_slots")
        self._slots[name] = slot

    def _free(self) -> int | None:
        taken = set(self._slots.values())
        return next((slot for slot in range(self.lora.slots) if slot not in taken), None)

    def _room(self, wanted: Collection[str]) -> int:
        """A free slot, or that of the least recently used adapter that this step does not need."""
        if (slot := self._free()) is not None:
            return slot
        oldest = next(name for name in self._slots if name not in wanted)
        return self._slots.pop(oldest)


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name or not name.isprintable() or len(name) > LONGEST_NAME:
        raise UsageError(
            f"{name!r:.60} cannot name an adapter",
            f"a name is printable text of 1 to {LONGEST_NAME} characters",
        )
