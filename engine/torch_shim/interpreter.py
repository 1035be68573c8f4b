"""Triton's interpreter: kernels as Python functions on the CPU, with every access seen.

Needs `TRITON_INTERPRET=1` before Triton is first imported (`interpreter_environment`). That changes
every kernel of the process, so a check runs in a process of its own.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from vcc.cache.errors import CompileError

Check = Callable[[Any, Any, int, bool], None]
"""Takes addresses (uint64), mask (bool), bytes of an element, and whether it is a write."""

HEADER = """import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers
from vcc.engine.torch_shim import interpreted_math
"""
"""What a generated kernel imports here; the device's own library has a stand-in."""

RENAMED = {"libdevice": "interpreted_math", "tl_math": "interpreted_math"}


def interpreting() -> bool:
    """Whether this process runs kernels by the interpreter."""
    from triton import knobs

    return bool(knobs.runtime.interpret)


@contextmanager
def watched(check: Check) -> Iterator[None]:
    """Show every load, store and atomic of the kernels run inside to `check`, before it is done."""
    from triton.runtime import interpreter

    module: Any = interpreter
    before, patch = module._interpreter, module._patch_lang
    module._interpreter, module._patch_lang = _Watched(before, check), _Once(patch)
    try:
        yield
    finally:
        module._interpreter, module._patch_lang = before, patch


class _Once:
    """Puts the interpreter's functions into Triton's language once a launch.

    The interpreter does it again at every call of a function by a kernel, at great cost and without
    effect: only the launch takes them out again.
    """

    def __init__(self, patch: Callable[[Any], Any]) -> None:
        self._patch, self._done = patch, set[int]()

    def __call__(self, function: Any) -> Any:
        from triton import language

        modules = (language, language.core)
        seen = {id(one) for one in function.__globals__.values() if any(one is m for m in modules)}
        if seen and seen <= self._done:
            return None
        self._done |= seen
        return self._patch(function)


class _Watched:
    """The interpreter's memory functions, with a check in front."""

    def __init__(self, inner: Any, check: Check) -> None:
        self._inner, self._check = inner, check

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        self._check(pointers, mask, other.dtype.itemsize, False)
        return self._inner.load(pointers, mask, other, dtype)

    def store(self, pointers: Any, value: Any, mask: Any) -> Any:
        self._check(pointers, mask, value.dtype.itemsize, True)
        return self._inner.store(pointers, value, mask)

    def atomic_rmw(self, op: Any, pointers: Any, value: Any, mask: Any, order: Any) -> Any:
        self._check(pointers, mask, value.dtype.itemsize, True)
        return self._inner.atomic_rmw(op, pointers, value, mask, order)

    def atomic_cas(self, pointers: Any, compare: Any, value: Any, order: Any) -> Any:
        self._check(pointers, None, value.dtype.itemsize, True)
        return self._inner.atomic_cas(pointers, compare, value, order)


def launch(function: Any, grid: tuple[int, int, int], words: dict[str, Any]) -> None:
    """Run a kernel over a grid; what a check raised comes out as it is.

    Raises:
        CompileError: the interpreter cannot run the kernel.
    """
    try:
        function[grid](**words)
    except Exception as error:
        cause = error.__cause__
        if type(error).__name__ == "InterpreterError" and cause is not None:
            if hasattr(cause, "what"):  # an error of ours, raised by a check
                raise cause from None
            error = cause if isinstance(cause, Exception) else error
        raise CompileError(
            f"Triton's interpreter cannot run {getattr(function, '__name__', function)}",
            f"{type(error).__name__}: {str(error)[:500]}",
        ) from error


def element_type(name: str) -> Any:
    """Triton's element type by its name, `bf16`."""
    import triton.language as tl

    return tl.dtype(name)


def own_kernel(module: str, function: str) -> Any:
    """A kernel of a module that can be imported."""
    return getattr(importlib.import_module(module), function)


def generated_kernel(text: str, function: str, folder: Path, stem: str) -> Any:
    """A kernel of a module that Inductor generated, without what needs its device.

    Args:
        text: the module's source.
        function: the kernel's name in it.
        folder, stem: where the rewritten module is put.
    """
    file = folder / f"{stem}.py"
    file.write_text(portable(text), encoding="utf-8")
    return getattr(_module(file), function)


def _module(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise CompileError(f"cannot import {file.name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def portable(text: str) -> str:
    """A generated module as its kernels alone: heuristics, device asserts and libraries go.

    >>> print(portable("import x\\n@heuristic()\\n@triton.jit\\ndef k(a):\\n  libdevice.tanh(a)"))
    ... # doctest: +ELLIPSIS
    import triton...
    @triton.jit
    def k(a):
        interpreted_math.tanh(a)
    <BLANKLINE>
    """
    kept = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return HEADER + "\n".join(ast.unparse(_Portable().visit(node)) for node in kept) + "\n"


class _Portable(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.decorator_list = [d for d in node.decorator_list if ast.unparse(d) == "triton.jit"]
        node.body = [s for s in node.body if not ast.unparse(s).startswith("tl.device_assert")]
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(RENAMED.get(node.id, node.id), node.ctx)
