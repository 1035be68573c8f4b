"""Describer: values of a running program as text that is equal for equal values in any process.

What cannot be described is refused: leaving it out would let code answer for another value.
"""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from vcc.cache.digest import Digest
from vcc.cache.errors import ModelError
from vcc.engine.tensor_bytes import tensor_bytes

_PLAIN = (
    *(type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis)),
    *(torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format),
)
_OTHERS = ("torch", "vcc", "builtins")
ORIGINAL = "_vcc_original"
"""Of a method that a decorator of this package put in place: the one that was there."""

_HINT = "keep it out of the module, or compile module:factory, which is known by its source"


class Describer:
    """Describes values and keeps the Python modules that they come from.

    Attributes:
        modules: names of the modules of all classes and functions that were met.
    """

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self._met: dict[int, int] = {}
        self._kept: list[object] = []  # an id is of one object only while it lives

    def value(self, value: Any, where: str) -> str:
        """A value as text.

        Args:
            value: anything that an attribute may hold.
            where: its name in an error.

        Raises:
            ModelError: it is of a kind that has no description.
        """
        if isinstance(value, enum.Enum):
            return f"{self._class(type(value))}.{value.name}"
        if type(value) in _PLAIN:
            return f"{type(value).__name__} {value!r}"
        if type(value) is tuple:  # which of equal ones are one object is chance
            return self._items(value, where)
        if id(value) in self._met:
            return f"again {self._met[id(value)]}"
        self._met[id(value)] = len(self._met)
        self._kept.append(value)
        return self._compound(value, where)

    def module_class(self, kind: type, where: str) -> str:
        """A module's class with the code of its methods as they are now, not as its file says."""
        names = [self._class(base) for base in kind.__mro__]
        own = [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in _OTHERS]
        methods = {
            f"{base.__qualname__}.{name}": getattr(one, ORIGINAL, one)
            for base in own
            for name, one in vars(base).items()
            if isinstance(one, types.FunctionType)
        }
        return f"{names[0]} {[(name, self.value(one, where)) for name, one in methods.items()]}"

    def _compound(self, value: Any, where: str) -> str:
        for kinds, describe in _TABLE:
            if isinstance(value, kinds):
                return describe(self, value, where)
        if hasattr(value, "__dict__") or _slots(value):
            fields = {**vars(value)} if hasattr(value, "__dict__") else {}
            fields |= {name: getattr(value, name) for name in _slots(value) if hasattr(value, name)}
            return f"{self._class(type(value))} {self._mapping(fields, where)}"
        raise ModelError(f"{where} cannot be put into a key", f"it is a {type(value)}", _HINT)

    def _class(self, kind: type) -> str:
        self.modules.add(kind.__module__)
        return f"{kind.__module__}.{kind.__qualname__}"

    def _items(self, value: Any, where: str) -> str:
        inner = ", ".join(self.value(one, f"{where}[{i}]") for i, one in enumerate(value))
        return f"{self._class(type(value))}[{inner}]"

    def _set(self, value: Any, where: str) -> str:
        return f"{type(value).__name__} {sorted(self.value(one, where) for one in value)}"

    def _mapping(self, value: Mapping[Any, Any], where: str) -> str:
        pairs = (
            f"{self.value(k, where)}: {self.value(v, f'{where}.{k}')}" for k, v in value.items()
        )
        return f"{type(value).__qualname__}{{{', '.join(pairs)}}}"

    def _tensor(self, value: torch.Tensor, where: str) -> str:
        if value.device.type != "cpu" or value.layout is not torch.strided:
            raise ModelError(
                f"{where} is {value.layout} on {value.device}", "constants are dense, on the CPU"
            )
        digest = Digest.of(tensor_bytes(value).tobytes())
        return f"{value.dtype} {list(value.shape)} {digest.hex}"

    def _function(self, value: types.FunctionType, where: str) -> str:
        self.modules.add(value.__module__)
        cells = [one.cell_contents for one in value.__closure__ or () if _filled(one)]
        said = [value.__defaults__, value.__kwdefaults__, self._globals(value), cells]
        held = ", ".join(self.value(one, f"{where} ({value.__name__})") for one in said)
        return f"{value.__module__}.{value.__qualname__} {_code(value.__code__)} {held}"

    def _globals(self, value: types.FunctionType) -> dict[str, Any]:
        """Plain globals that a function reads: they may have been set since its file was read."""
        found = {name: value.__globals__.get(name) for name in value.__code__.co_names}
        return {k: v for k, v in found.items() if type(v) in (bool, int, float, str, torch.dtype)}

    def _method(self, value: types.MethodType, where: str) -> str:
        of_module = isinstance(value.__self__, nn.Module)
        owner = "of a module" if of_module else self.value(value.__self__, where)
        return f"method {self.value(value.__func__, where)} {owner}"

    def _partial(self, value: functools.partial[Any], where: str) -> str:
        return self.value((value.func, value.args, dict(value.keywords)), where)

    def _named(self, value: Any, where: str) -> str:
        return f"{value.__module__}.{value.__qualname__}"

    def _python_module(self, value: types.ModuleType, where: str) -> str:
        self.modules.add(value.__name__)
        return f"module {value.__name__}"

    def _nn(self, value: nn.Module, where: str) -> str:
        raise ModelError(
            f"{where} is a module outside of the module tree",
            "its weights would become constants of the code",
            "assign it as an attribute, or use nn.ModuleList or nn.ModuleDict",
        )

    def _type(self, value: type, where: str) -> str:
        return f"class {self._class(value)}"


_Describe = Callable[[Describer, Any, str], str]

# The first that fits; plain values and enums are done before.
_TABLE: tuple[tuple[Any, _Describe], ...] = (
    (torch.Tensor, Describer._tensor),
    (nn.Module, Describer._nn),
    (type, Describer._type),
    ((list, tuple), Describer._items),
    ((set, frozenset), Describer._set),
    (Mapping, Describer._mapping),
    (types.FunctionType, Describer._function),
    (types.MethodType, Describer._method),
    (functools.partial, Describer._partial),
    ((types.BuiltinFunctionType, types.MethodDescriptorType), Describer._named),
    (types.ModuleType, Describer._python_module),
)


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 (raises while the name is not bound yet)
    except ValueError:
        return False
    return True


def _slots(value: object) -> tuple[str, ...]:
    found = (getattr(kind, "__slots__", ()) for kind in type(value).__mro__)
    return tuple(name for one in found for name in ((one,) if isinstance(one, str) else one))


def _code(code: types.CodeType) -> str:
    """A digest of what a function does: its bytes, names and constants, nested ones too."""
    inner = [_constant(one) for one in code.co_consts]
    return Digest.of(repr((code.co_code, code.co_names, inner)).encode()).hex[:32]


def _constant(value: object) -> str:
    if isinstance(value, types.CodeType):
        return _code(value)
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)
