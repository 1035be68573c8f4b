"""From the tables of a prewarm file to its builds: defaults, lists, overrides, and all mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from vcc.engine.config.checks import suggestion
from vcc.engine.prewarm.fields import MATRIX, MODEL, OPTIONS, Field
from vcc.engine.prewarm.places import Path, Place
from vcc.engine.prewarm.problems import Problem

DEFAULTS, BUILD, OVERRIDE, WHEN = "defaults", "build", "override", "when"

_SHARED: Mapping[str, Field] = {**MATRIX, **OPTIONS}


@dataclass(frozen=True, slots=True)
class Cell:
    """One build.

    Attributes:
        name: its model, its place in the matrix and what the build itself says, for people.
        model: as `vcc compile` takes it.
        fields: options of `vcc compile` by their names in the file.
        line, column: of the table that it stands in.
    """

    name: str
    model: str
    fields: Mapping[str, Any]
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Tables:
    """A file as its parser read it, and where its keys stand; mistakes are collected."""

    values: Mapping[str, Any]
    places: Mapping[Path, Place]
    problems: list[Problem] = field(default_factory=list)

    def wrong(self, path: Path, text: str) -> None:
        """Note a mistake at the place of a key, or of the table that it is missing from."""
        while path and path not in self.places:
            path = path[:-1]
        place = self.places.get(path, Place(1, 1))
        self.problems.append(Problem(place.line, place.column, text))

    def unknown(self, path: Path, name: str, known: Iterator[str] | tuple[str, ...]) -> None:
        """Note a key that nobody knows."""
        self.wrong((*path, name), f'unknown field "{name}"; {suggestion(name, known)}')


def combined(tables: Tables) -> tuple[tuple[Cell, ...], list[Problem]]:
    """All builds of a file and all mistakes in it."""
    for name in tables.values.keys() - {DEFAULTS, BUILD}:
        tables.unknown((), name, (DEFAULTS, BUILD))
    defaults = _table(tables, (DEFAULTS,), tables.values.get(DEFAULTS, {}))
    _check(tables, (DEFAULTS,), defaults, _SHARED)
    cells: list[Cell] = []
    for index, build in enumerate(_list(tables, (BUILD,), tables.values.get(BUILD, []))):
        cells += _cells(tables, (BUILD, index), build, defaults)
    return tuple(cells), tables.problems


def _cells(
    tables: Tables, path: Path, build: Mapping[str, Any], defaults: Mapping[str, Any]
) -> list[Cell]:
    said = {name: value for name, value in build.items() if name != OVERRIDE}
    _check(tables, path, said, {"model": MODEL, **_SHARED})
    if "model" not in said:
        tables.wrong(path, "a build needs a model")
    overrides = list(_overrides(tables, path, build))
    if tables.problems:
        return []
    place = tables.places[path]
    fields = {**defaults, **said}
    model = fields.pop("model")
    axes = {name: _values(fields.pop(name)) for name in MATRIX if name in fields}
    own_words = [f"{name}={value}" for name, value in said.items() if _is_short(name, value)]
    made = []
    for values in product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        own = {**fields}
        for override in overrides:
            own |= override.fields_for(point)
        name = " · ".join((model, *map(str, values), *own_words))
        made.append(Cell(name, model, {**own, **point}, place.line, place.column))
    for override in overrides:
        if not override.used:
            tables.wrong(override.path, "no combination of this build is of what it says")
    return made


@dataclass(slots=True)
class _Override:
    path: Path
    when: Mapping[str, tuple[Any, ...]]
    fields: Mapping[str, Any]
    used: bool = False

    def fields_for(self, point: Mapping[str, Any]) -> Mapping[str, Any]:
        """Its fields, for a combination that it is for."""
        if any(point.get(name) not in values for name, values in self.when.items()):
            return {}
        self.used = True
        return self.fields


def _overrides(tables: Tables, path: Path, build: Mapping[str, Any]) -> Iterator[_Override]:
    for index, one in enumerate(_list(tables, (*path, OVERRIDE), build.get(OVERRIDE, []))):
        at = (*path, OVERRIDE, index)
        when = _table(tables, (*at, WHEN), one.get(WHEN, {}))
        if not when:
            tables.wrong(at, 'an override needs when = { dtype = "..." }, or target, or mode')
        _check(tables, (*at, WHEN), when, MATRIX)
        fields = {name: value for name, value in one.items() if name != WHEN}
        _check(tables, at, fields, OPTIONS)
        yield _Override(at, {name: _values(value) for name, value in when.items()}, fields)


def _check(
    tables: Tables, path: Path, values: Mapping[str, Any], known: Mapping[str, Field]
) -> None:
    for name, value in values.items():
        if name not in known:
            tables.unknown(path, name, tuple(known))
        elif name in MATRIX and isinstance(value, list):
            _check_axis(tables, (*path, name), name, value)
        elif text := known[name].wrong(name, value):
            tables.wrong((*path, name), text)


def _check_axis(tables: Tables, path: Path, name: str, values: list[Any]) -> None:
    if not values:
        tables.wrong(path, f"{name} has no value: leave it out, or name one")
    for number, value in enumerate(values):
        if text := MATRIX[name].wrong(name, value):
            tables.wrong((*path, number), text)
        elif value in values[:number]:
            tables.wrong((*path, number), f'{name} has "{value}" twice')


def _table(tables: Tables, path: Path, value: Any) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    tables.wrong(path, f"{path[-1]} must be a table")
    return {}


def _list(tables: Tables, path: Path, value: Any) -> list[Mapping[str, Any]]:
    if isinstance(value, list) and all(isinstance(one, dict) for one in value):
        return value
    tables.wrong(path, f"{path[-1]} must be tables: write [[{'.'.join(_names(path))}]]")
    return []


def _names(path: Path) -> Iterator[str]:
    return (one for one in path if isinstance(one, str))


def _is_short(name: str, value: Any) -> bool:
    """Whether it tells a build from others of its model in a few letters."""
    return name in OPTIONS and isinstance(value, (int, str)) and len(str(value)) <= 24


def _values(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)
