"""The source files behind classes and functions of a running program."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from vcc.cache.digest import Digest
from vcc.cache.errors import ModelError
from vcc.engine.models.import_closure import closure_of

_ELSEWHERE = frozenset({"torch", "vcc", "builtins"})
"""They enter a key by fields of their own, or not at all."""


def sources_of_modules(
    first: str, modules: Iterable[str]
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Digests of the sources of Python modules and of what they import.

    Args:
        first: the module that names the whole; a script is called by its file.
        modules: all of them.

    Returns:
        The name of the first, and (module, SHA-256) or (package.version, version), sorted.

    Raises:
        ModelError: a module has no source file, as in an interactive session.
    """
    files: dict[str, bytes] = {}
    versions: dict[str, str] = {}
    for name in sorted({first, *modules}):
        top = name.partition(".")[0]
        if top in _ELSEWHERE or top in sys.stdlib_module_names or name in files:
            continue
        found, root = _place(name)
        closure = closure_of(found, root)
        files |= closure.files
        versions |= closure.versions
    digests = {module: Digest.of(text).hex for module, text in files.items()}
    return _place(first)[0], tuple(sorted({**digests, **versions}.items()))


def _place(name: str) -> tuple[str, Path]:
    """The name under which a loaded module can be found, and the folder to look from."""
    module = sys.modules.get(name)
    spec, file = getattr(module, "__spec__", None), getattr(module, "__file__", None)
    if not isinstance(file, str):
        raise ModelError(
            f"{name} has no source file",
            "the source is part of the key, so that an edit asks for another artifact",
            "define the module or function in a file and import it",
        )
    path = Path(file).resolve()
    if name == "__main__":
        name = path.stem if spec is None else spec.name
    ups = name.count(".") + (path.name.startswith("__init__."))
    return name, path.parents[min(ups, len(path.parents) - 1)]
