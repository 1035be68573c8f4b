"""Decorators: classes of modules and functions whose calls run code from the store.

@vcc.support_torch_compile
class Block(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor: ...

@vcc.cache_compiled(dynamic_arg_dims={"x": 0})
def scores(x: torch.Tensor) -> torch.Tensor: ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from torch import nn

from vcc.cache.errors import ConfigError, UsageError
from vcc.engine.config.modes import CompileMode
from vcc.engine.config.types import CompilationConfig
from vcc.engine.library.adapter import calls_plainly
from vcc.engine.library.annotations import tensor_arguments
from vcc.engine.library.compiled import Accounts, Compiled
from vcc.engine.library.describe import ORIGINAL
from vcc.engine.library.function import FunctionModule
from vcc.engine.library.options import Dims, Options, make_options
from vcc.engine.library.watch import SLOT

if TYPE_CHECKING:
    from vcc.engine.monitor import Counters, Ledger

Class = TypeVar("Class", bound=type[nn.Module])
P = ParamSpec("P")
R = TypeVar("R")

EnableIf = Callable[[CompilationConfig], bool]

SUPPORT = "_vcc_support"
"""Of a class: how its instances are compiled; None where they are not."""

CONFIG = "vcc_config"
"""Keyword of a decorated class's constructor: the configuration of this instance."""


@dataclass(frozen=True, slots=True)
class Support:
    """How instances of a class are compiled."""

    options: Options
    enable_if: EnableIf | None
    monitor: Ledger | None
    counters: Counters | None


class Slot:
    """What an instance keeps: its configuration, and its compiled form once it has one.

    Copies and pickles of a module have their own, empty of compiled code.
    """

    def __init__(self, config: CompilationConfig | None) -> None:
        self.config = config
        self.compiled: Compiled[..., Any] | None = None
        self.enabled: bool | None = None

    def __deepcopy__(self, memo: object) -> Slot:
        return Slot(self.config)

    def __reduce__(self) -> tuple[type[Slot], tuple[CompilationConfig | None]]:
        return (Slot, (self.config,))


@overload
def support_torch_compile(cls: Class, /) -> Class:
    """The class itself, decorated."""


@overload
def support_torch_compile(
    cls: None = None,
    /,
    *,
    dynamic_arg_dims: Mapping[str, Dims] | None = None,
    sizes: Mapping[str, tuple[int, int]] | None = None,
    enable_if: EnableIf | None = None,
    compilation: CompilationConfig | Mapping[str, Any] | None = None,
    cache_dir: Path | None = None,
    require_warm: bool = False,
    golden: str = "one",
    copy: bool = True,
    monitor: Ledger | None = None,
    counters: Counters | None = None,
) -> Callable[[Class], Class]:
    """A decorator with these options."""


def support_torch_compile(
    cls: Any = None,
    /,
    *,
    dynamic_arg_dims: Mapping[str, Dims] | None = None,
    sizes: Mapping[str, tuple[int, int]] | None = None,
    enable_if: EnableIf | None = None,
    compilation: CompilationConfig | Mapping[str, Any] | None = None,
    cache_dir: Path | None = None,
    require_warm: bool = False,
    golden: str = "one",
    copy: bool = True,
    monitor: Ledger | None = None,
    counters: Counters | None = None,
) -> Any:
    """Let the instances of a class of modules be called by compiled code.

    The class stays what it is. Its constructor takes one more keyword, `vcc_config`: the
    configuration of the instance, in place of `compilation`. Inside of another module that is
    being traced, and where `mode` is NO_COMPILATION or `enable_if` says no, the forward itself
    runs. Subclasses are compiled too; `ignore_torch_compile` takes one out.

    Args:
        cls: the class, when the decorator is used without parentheses.
        dynamic_arg_dims: as in `vcc.compile`; None infers: dimension 0 of every argument of
            forward that is annotated as a tensor or an optional one, all of one size `T`.
        enable_if: asked once an instance with its configuration, before its first call.
        sizes, compilation, cache_dir, require_warm, golden, copy, monitor, counters: as in
            `vcc.compile`.

    Raises:
        ConfigError: nothing can be inferred, or an argument that is named is not there.
        UsageError: what is decorated is no class of modules.
    """

    def decorate(kind: Class) -> Class:
        if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
            raise UsageError(
                "support_torch_compile decorates classes of nn.Module", repr(kind)[:80]
            )
        dims = _inferred(kind) if dynamic_arg_dims is None else dynamic_arg_dims
        options = make_options(
            dims,
            sizes,
            compilation,
            cache_dir=cache_dir,
            require_warm=require_warm,
            golden=golden,
            copy=copy,
        )
        setattr(kind, SUPPORT, Support(options, enable_if, monitor, counters))
        _patch(kind)
        return kind

    return decorate if cls is None else decorate(cls)


def ignore_torch_compile(cls: Class) -> Class:
    """Take a class out that inherits `support_torch_compile`; its own subclasses too.

    Submodules that are decorated themselves are compiled all the same.
    """
    setattr(cls, SUPPORT, None)
    return cls


@overload
def cache_compiled(function: Callable[P, R], /) -> Compiled[P, R]:
    """The function, compiled."""


@overload
def cache_compiled(
    function: None = None,
    /,
    *,
    dynamic_arg_dims: Mapping[str, Dims] | None = None,
    sizes: Mapping[str, tuple[int, int]] | None = None,
    compilation: CompilationConfig | Mapping[str, Any] | None = None,
    cache_dir: Path | None = None,
    require_warm: bool = False,
    golden: str = "one",
    copy: bool = True,
    monitor: Ledger | None = None,
    counters: Counters | None = None,
) -> Callable[[Callable[P, R]], Compiled[P, R]]:
    """A decorator with these options."""


def cache_compiled(
    function: Any = None,
    /,
    *,
    dynamic_arg_dims: Mapping[str, Dims] | None = None,
    sizes: Mapping[str, tuple[int, int]] | None = None,
    monitor: Ledger | None = None,
    counters: Counters | None = None,
    compilation: CompilationConfig | Mapping[str, Any] | None = None,
    **others: Any,
) -> Any:
    """Let a function of tensors run by compiled code, kept in the store from process to process.

    Its source, what it closes over and what its module imports are part of the key. Without
    `dynamic_arg_dims` each set of shapes is a variant of its own. Arguments as in `vcc.compile`.

    Raises:
        ConfigError: a field, a dimension or a size that cannot be.
        UsageError: what is decorated is no function.
    """

    def decorate(made: Callable[P, R]) -> Compiled[P, R]:
        if isinstance(made, (type, nn.Module)) or not callable(made):
            raise UsageError(
                "cache_compiled decorates functions of tensors",
                f"got a {type(made).__name__}",
                "use @vcc.support_torch_compile for classes, vcc.compile for modules",
            )
        options = make_options(dynamic_arg_dims, sizes, compilation, **others)
        accounts = Accounts.of(monitor, counters)
        compiled = Compiled(FunctionModule(made), made, options, accounts)
        update_wrapper(compiled, made)
        return compiled

    return decorate if function is None else decorate(function)


def _inferred(kind: type[nn.Module]) -> Mapping[str, Dims]:
    found = tensor_arguments(kind.forward)
    if not found:
        raise ConfigError(
            f"no dynamic dimension of {kind.__qualname__} can be inferred",
            "no argument of its forward is annotated as a torch.Tensor",
            'annotate them, or name them: dynamic_arg_dims={"x": 0}; {} makes all sizes fixed',
        )
    return dict.fromkeys(found, 0)


def _patch(kind: type[nn.Module]) -> None:
    """Put the constructor and the call of a class in place, once in a line of inheritance."""
    if any(hasattr(vars(base).get("__call__"), ORIGINAL) for base in kind.__mro__):
        return
    construct, call = kind.__init__, kind.__call__

    def __init__(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        given = kwargs.pop(CONFIG, None)
        construct(self, *args, **kwargs)
        _slot(self, given)

    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        support = getattr(type(self), SUPPORT, None)
        if support is None or calls_plainly():
            return call(self, *args, **kwargs)
        slot = _slot(self)
        if slot.enabled is None:
            _decide(self, slot, support)
        compiled = slot.compiled
        return call(self, *args, **kwargs) if compiled is None else compiled(*args, **kwargs)

    for name, patch, original in (("__init__", __init__, construct), ("__call__", __call__, call)):
        update_wrapper(patch, original)
        setattr(patch, ORIGINAL, original)
        setattr(kind, name, patch)


def _slot(module: nn.Module, given: Any = None) -> Slot:
    found = vars(module).get(SLOT)
    if not isinstance(found, Slot):
        found = Slot(None if given is None else make_options(None, None, given).compilation)
        object.__setattr__(module, SLOT, found)
    return found


def _decide(module: nn.Module, slot: Slot, support: Support) -> None:
    """Whether an instance is compiled, and by what; once."""
    options = support.options
    if slot.config is not None:
        options = replace(options, compilation=slot.config)
    config = options.compilation
    wanted = support.enable_if is None or bool(support.enable_if(config))
    slot.enabled = wanted and config.mode is not CompileMode.NO_COMPILATION
    if slot.enabled:
        subject: Any = type(module)
        accounts = Accounts.of(support.monitor, support.counters)
        slot.compiled = Compiled(module, subject, options, accounts)
