"""Array names in AOTInductor's wrappers that do not depend on memory addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stable_array_names() -> Iterator[None]:
    """Give equal pieces equal wrappers under torch before 2.13.

    Those releases remember declared arrays by the address of a bound method that is gone by then,
    so whether an array is declared again depends on what lies there next. Keeping one method for
    each owner alive makes the address mean the owner, as in 2.13.
    """
    from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

    wrappers: Any = CppWrapperCpu
    original = wrappers.codegen_int_array_var

    def keyed(self: Any, int_array: str, writeline: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self, int_array, _kept(self, writeline), *args, **kwargs)

    wrappers.codegen_int_array_var = keyed
    try:
        yield
    finally:
        wrappers.codegen_int_array_var = original


def _kept(wrapper: Any, writeline: Callable[..., None]) -> Callable[..., None]:
    """The first method of this owner that the wrapper used; it keeps its owner alive too."""
    methods: dict[Any, Callable[..., None]] = wrapper.__dict__.setdefault("_vcc_writelines", {})
    owner = getattr(writeline, "__self__", writeline)
    return methods.setdefault((id(owner), getattr(writeline, "__name__", "")), writeline)
