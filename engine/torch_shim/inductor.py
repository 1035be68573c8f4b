"""AOTInductor and its configuration: one piece in, the bytes of its library out."""

from __future__ import annotations

import difflib
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import torch
from torch.fx import GraphModule

from vcc.cache.errors import ConfigError
from vcc.engine.config.inductor_options import CPU_OPTIONS, FIXED_OPTIONS, check_level
from vcc.engine.torch_shim.array_names import stable_array_names
from vcc.engine.torch_shim.index_checks import checks_that_return
from vcc.engine.torch_shim.local_buffers import readers_only


def merged_options(level: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """All Inductor options of a build; the user's win.

    Raises:
        DeviceError: no code is made for this CPU level.
    """
    check_level(level)
    return {**FIXED_OPTIONS, **CPU_OPTIONS[level], **options}


def check_options(options: Mapping[str, object]) -> None:
    """Refuse options of the user's that Inductor does not have, and values of another kind.

    Raises:
        ConfigError: the first such option, with the closest one that exists, or what it takes.
    """
    from torch._inductor import config

    known: Any = config
    for name, value in options.items():
        try:
            kind = known.get_type(name)
        except KeyError as error:
            raise ConfigError(
                f'Inductor of torch {torch.__version__} has no option "{name}"',
                "inductor_config is handed to it as it is",
                _nearest(name, known.get_config_copy()),
            ) from error
        if not fits(value, kind):
            raise ConfigError(
                f'Inductor\'s option "{name}" cannot be {value!r:.60}',
                f"it takes {_said(kind)}",
                "inductor_config is handed to Inductor as it is: write the value as JSON has it",
            )


def fits(value: object, kind: Any) -> bool:
    """Whether a number, a text, true or false is a value of a declared type.

    Args:
        value: as JSON gives it: 1 is no float here only where no float is taken, and true is no 1.
        kind: of `config.get_type`; NoneType of an option whose type nobody declared takes any.
    """
    choices = get_args(kind)
    if get_origin(kind) is Literal:
        return any(type(value) is type(one) and value == one for one in choices)
    if get_origin(kind) in (Union, UnionType):
        return any(fits(value, one) for one in choices if one is not NoneType)
    if kind in (NoneType, Any, object):
        return True
    return type(value) is kind or (kind is float and type(value) is int)


def _said(kind: Any) -> str:
    """A type in words of Python, short."""
    return kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")[:120]


def _nearest(name: str, known: Iterable[str]) -> str:
    """A hint for an option's name: those that are closest."""
    close = difflib.get_close_matches(name, [*known], n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return "its options are in torch/_inductor/config.py"


def compile_library(
    graph: GraphModule, arguments: Sequence[torch.Tensor], options: Mapping[str, Any]
) -> list[Path]:
    """Compile a graph with AOTInductor and return the files it wrote.

    Args:
        graph: out-buffer form, not functionalised.
        arguments: fake tensors that carry ranges and hints.
        options: of `merged_options`.

    Raises:
        ConfigError: an option of the user that this torch does not know.
    """
    from torch._inductor import aot_compile, config

    known = {name: value for name, value in options.items() if _known(config, name)}
    strange = options.keys() - known.keys() - _BUILTIN
    check_options({name: options[name] for name in strange})
    flags = _fixed_flags(str(options.get("cpp.march", "")))
    with flags, stable_array_names(), readers_only(), checks_that_return():
        files: Any = aot_compile(graph, tuple(arguments), options=known)
    names = [files] if isinstance(files, str) else files
    return [Path(name) for name in names if isinstance(name, str)]


_BUILTIN = frozenset(FIXED_OPTIONS) | frozenset(k for o in CPU_OPTIONS.values() for k in o)


def _known(config: Any, name: str) -> bool:
    value = config
    for part in name.split("."):
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return True


def _shared_cxx(compiler: str) -> tuple[str, ...]:
    """Link flags that make a library share torch's C++ library.

    A toolchain that brings only the static one would put a second copy into every piece, and what
    one copy throws the other cannot catch. Its driver answers the bare name where it has no file.
    """
    command = [compiler, "-print-file-name=libstdc++.so"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    if said != "libstdc++.so":
        return ()
    return ("Wl,--push-state,--no-as-needed,-l:libstdc++.so.6,--pop-state",)


NO_EXECUTABLE_STACK = "Wl,-z,noexecstack"
"""AOTInductor's assembly of constants does not say that it needs none; glibc 2.41 and later load
no library that may, and earlier ones make the stack of the whole process executable."""


@contextmanager
def _fixed_flags(march: str) -> Iterator[None]:
    """Compile with flags that depend on neither the build folder nor the building machine.

    The folder's path is mapped away, so that equal pieces give equal bytes. Torch before 2.13 has
    no `cpp.march` and compiles for the machine it runs on: that flag becomes `march` here.
    """
    from torch._inductor import cpp_builder
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    original = cpp_builder._get_optimization_cflags

    def fixed(*args: Any, **kwargs: Any) -> tuple[list[str], list[str]]:
        cflags, ldflags = original(*args, **kwargs)
        pinned = [f"march={march}" if march and f == "march=native" else f for f in cflags]
        shared = _shared_cxx(args[0] if args else kwargs["cpp_compiler"])
        links = [*ldflags, *shared, NO_EXECUTABLE_STACK]
        return [*pinned, f"ffile-prefix-map={cache_dir()}=/vcc"], links

    cpp_builder._get_optimization_cflags = fixed
    try:
        yield
    finally:
        cpp_builder._get_optimization_cflags = original
