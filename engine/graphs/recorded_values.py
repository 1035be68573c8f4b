"""Values of a recorded function: numbers for what its calls made, the objects for all else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

Fill = Callable[[list[Any]], Any]
"""Gives an argument, out of the values of the run under way."""


class Values:
    """Results of calls by number.

    While recording every result is kept alive, so that an object's id is of it alone; sealed, a
    result lives from its call to its last reader.
    """

    def __init__(self) -> None:
        self._held: list[Any] = []
        self._numbers: dict[int, tuple[int, Any]] = {}
        self._kept: list[Any] = []
        self._readers: dict[int, int] = {}
        self._left: list[int] = []

    def keep(self, result: Any) -> int:
        """A number for the result of a call; tensors in it are known from now on."""
        number = len(self._held)
        self._held.append(None)
        self._kept.append(result)
        self._know(result, number, lambda value: value)
        return number

    def _know(self, value: Any, number: int, path: Callable[[Any], Any]) -> None:
        if isinstance(value, torch.Tensor):
            # An operator in place returns what it was given, which keeps its number.
            self._numbers.setdefault(id(value), (number, path))
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                self._know(item, number, _item(path, index))
        elif isinstance(value, Mapping):
            for key, item in value.items():
                self._know(item, number, _item(path, key))

    def reader(self, value: Any) -> Fill:
        """What gives this argument in a replay: results by number, all else as it is."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, (list, tuple)):
            parts = [self.reader(item) for item in value]
            kind = list if isinstance(value, list) else tuple
            return lambda held: kind(part(held) for part in parts)
        if isinstance(value, Mapping):
            named = {key: self.reader(item) for key, item in value.items()}
            return lambda held: {key: part(held) for key, part in named.items()}
        return lambda held: value

    def _tensor(self, value: torch.Tensor) -> Fill:
        found = self._numbers.get(id(value))
        if found is None:
            self._kept.append(value)
            return lambda held: value
        number, path = found
        self._readers[number] = self._readers.get(number, 0) + 1
        return self._reading(number, path)

    def _reading(self, number: int, path: Callable[[Any], Any]) -> Fill:
        def read(held: list[Any]) -> Any:
            found = path(held[number])
            self._left[number] -= 1
            if not self._left[number]:
                held[number] = None
            return found

        return read

    def seal(self) -> None:
        """Recording is over: let go of what it made."""
        self._numbers.clear()
        self._kept.clear()
        self._left = [self._readers.get(number, 0) for number in range(len(self._held))]

    def read(self, fill: Fill) -> Any:
        """An argument of the replay under way."""
        return fill(self._held)

    def put(self, number: int, result: Any) -> None:
        """The result of a call of the replay under way; dropped at once where nobody reads it."""
        self._left[number] = self._readers.get(number, 0)
        self._held[number] = result if self._left[number] else None


def _item(path: Callable[[Any], Any], key: Any) -> Callable[[Any], Any]:
    return lambda value: path(value)[key]
