"""What identifies a module of a running program in a request: sources, structure, attributes.

Weights are not part of it: they are bound when an artifact is booted. Of buffers outside the state
dict and of tensors in attributes the content is, since a trace makes constants of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from vcc.cache.digest import Digest
from vcc.engine.library.describe import Describer
from vcc.engine.library.sources import sources_of_modules
from vcc.engine.library.watch import SLOT
from vcc.engine.torch_shim.module_parts import HIDDEN, own_buffers, own_parameters

_ODD = re.compile(r"[^A-Za-z0-9_.]")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a request says of a module.

    Attributes:
        module: the Python module that defines it.
        name: its class or function in there.
        code: (module, SHA-256) of sources, (package.version, text) of installed ones.
        state: (label, digest) of what its parts are, one entry a class.
    """

    module: str
    name: str
    code: tuple[tuple[str, str], ...]
    state: tuple[tuple[str, str], ...]


def identity_of(module: nn.Module, subject: object) -> Identity:
    """Describe a module.

    Args:
        module: all of it.
        subject: the class or the function that it is made from.

    Raises:
        ModelError: an attribute cannot be described, or a source is not there.
    """
    describer = Describer()
    parts: dict[str, list[str]] = {}
    for path, one in module.named_modules(remove_duplicate=False):
        lines = parts.setdefault(_class_name(one), [])
        lines += [f"module {path}", *_lines(one, path, describer)]
    describer.value(subject, "the module")
    name = _plain(str(getattr(subject, "__qualname__", type(subject).__name__)))
    module_name, code = sources_of_modules(
        str(getattr(subject, "__module__", "")), describer.modules
    )
    state = {f"state.{name}": Digest.of("\n".join(v).encode()).hex for name, v in parts.items()}
    return Identity(module_name, name, code, tuple(sorted(state.items())))


def _lines(module: nn.Module, path: str, describer: Describer) -> list[str]:
    """The description of one module without its submodules' own."""
    where = path or "the module"
    lines = [f"class {describer.module_class(type(module), where)}"]
    for name, weight in own_parameters(module).items():
        lines.append(f"parameter {name} {_geometry(weight)}")
    for name, data, kept in own_buffers(module):
        text = _geometry(data) if kept or data is None else describer.value(data, f"{where}.{name}")
        lines.append(f"buffer {name} {kept} {text}")
    for name, value in vars(module).items():
        if name not in HIDDEN and name != SLOT:
            lines.append(f"attribute {name} {describer.value(value, f'{where}.{name}')}")
    return lines


def _geometry(tensor: object) -> str:
    if tensor is None:
        return "none"
    shape, dtype = getattr(tensor, "shape", ()), getattr(tensor, "dtype", "")
    return f"{dtype} {list(shape)}"


def _class_name(module: nn.Module) -> str:
    return _plain(f"{type(module).__module__}.{type(module).__qualname__}")


def _plain(name: str) -> str:
    """As a label of a key can have it."""
    return _ODD.sub("", name)[-160:].lstrip(".0123456789") or "module"


def title_of(identity: Identity) -> str:
    """What artifacts are called, for people."""
    return f"{identity.module}:{identity.name}"


def as_state(identity: Identity, more: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Entries of a request beyond sources."""
    return tuple(sorted({**dict(identity.state), **more}.items()))
