"""Compiled: a module of a running program whose calls run code from the store.

The first call of a variant looks for its artifact, as `vcc run` does, and builds it where there is
none. Later calls compare what they are given with what was declared, and run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, ParamSpec, TypeVar

import torch
from torch import nn

from vcc.cache.errors import IntegrityError, MissingArtifact, UsageError
from vcc.cache.store import Store
from vcc.engine.config.environment import kept_environment
from vcc.engine.config.modes import CompileMode, Dtype
from vcc.engine.config.target import Target
from vcc.engine.config.types import ModelConfig, ParallelConfig
from vcc.engine.events import Events
from vcc.engine.library.adapter import Adapter
from vcc.engine.library.apart import check_apart
from vcc.engine.library.arguments import Arguments, Call, Variant
from vcc.engine.library.identity import Identity, as_state, identity_of, title_of
from vcc.engine.library.options import Options
from vcc.engine.library.outputs import restored
from vcc.engine.library.watch import Watch
from vcc.engine.log_events import told_of
from vcc.engine.models.factory import LiveRef
from vcc.engine.models.source import Source
from vcc.engine.monitor import Counters, Ledger
from vcc.engine.request import BuildRequest, settle
from vcc.engine.runtime.forward import Forward
from vcc.engine.session import Session, open_module_session

P = ParamSpec("P")
R = TypeVar("R")

MOST_VARIANTS = 64
"""Artifacts of one module in one process: more means that a value should have been a tensor."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A booted variant.

    Attributes:
        forward: tensors by name in, outputs by number out.
        tree: the form of the outputs.
        changed: inputs that the forward writes to; their new values come last.
        artifact: its id; None when it could not be stored.
    """

    forward: Forward
    tree: Any
    changed: tuple[str, ...]
    artifact: str | None


@dataclass(frozen=True, slots=True)
class Accounts:
    """Who is told: progress, seconds, counts."""

    events: Events
    ledger: Ledger
    counters: Counters

    @classmethod
    def of(cls, monitor: Ledger | None, counters: Counters | None) -> Accounts:
        """Those that a caller gave, and new ones for the rest."""
        ledger = monitor if monitor is not None else Ledger()
        return cls(told_of(ledger), ledger, counters if counters is not None else Counters())


class Compiled(Generic[P, R]):
    """A callable in place of a module or a function; made by `vcc.compile` and the decorators.

    Attributes:
        counters: what was traced, compiled, found and restored so far.
    """

    def __init__(
        self,
        module: nn.Module,
        subject: Callable[P, R],
        options: Options,
        accounts: Accounts,
    ) -> None:
        self._module, self._subject, self._options = module, subject, options
        self._accounts = accounts
        self._arguments = Arguments(_signature_of(module), options)
        self._variants: dict[Variant, Ready] = {}
        self._identity: Identity | None = None
        self._watch: Watch | None = None
        self._lock = threading.RLock()

    @property
    def counters(self) -> Counters:
        """What was traced, compiled, found and restored so far."""
        return self._accounts.counters

    @property
    def artifacts(self) -> tuple[str, ...]:
        """Ids of the stored artifacts that calls ran or were prepared for."""
        return tuple(one.artifact for one in self._variants.values() if one.artifact)

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """Boot the artifact for calls like this one, or build it; nothing is computed.

        Returns:
            Its id; None when it was built and could not be stored.

        Raises:
            UsageError: the arguments do not fit.
            ModelError: the module cannot be put into a key, or returns no tensors.
            MissingArtifact: there is none, and `require_warm` forbids to build one.
            CompileError, DeviceError: the build or the boot failed.
        """
        with self._lock:
            return self._ready(self._arguments.read(args, kwargs)).artifact

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Compute; calls of several threads run one after the other.

        Returns:
            What the module returns. Tensors are new ones, or with `copy=False` views that the
            next call overwrites; none has a gradient.

        Raises:
            UsageError: the arguments do not fit.
            Exception: as `prepare`, where the call is the first of its variant.
        """
        with self._lock, torch.no_grad():
            call = self._arguments.read(args, kwargs)
            ready = self._ready(call)
            if ready.changed:
                check_apart(call.tensors, ready.changed)
            leaves = list(ready.forward(call.tensors).values())
            count = len(leaves) - len(ready.changed)
            for name, value in zip(ready.changed, leaves[count:], strict=True):
                call.tensors[name].copy_(value)
            outputs = leaves[:count]
            if self._options.copy:
                outputs = [one.clone() for one in outputs]
            result: R = restored(ready.tree, outputs)
            return result

    def _ready(self, call: Call) -> Ready:
        """The variant's code, made anew when the module is not what it was made for."""
        if self._watch is None or not self._watch.holds():
            self._variants.clear()
            self._identity, self._watch = None, Watch(self._module)
        found = self._variants.get(call.variant)
        if found is None:
            if len(self._variants) >= MOST_VARIANTS:
                raise _too_many(self._variants)
            found = self._variants[call.variant] = self._booted(call)
        return found

    def _booted(self, call: Call) -> Ready:
        variant = call.variant
        _check_inference(self._module)
        if self._identity is None:
            self._identity = identity_of(self._module, self._subject)
        adapter = Adapter(self._module, variant)
        accounts, options = self._accounts, self._options
        session = Session(
            settle(_request(adapter, _traced_once(call, options), self._identity, options)),
            Store.open(options.cache_dir),
            options.golden,
            options.require_warm,
            accounts.events,
            accounts.ledger,
            accounts.counters,
        )
        try:
            with kept_environment():
                ready = open_module_session(session)
        except (MissingArtifact, IntegrityError) as error:
            error.hint = "call it, or .prepare(…) it, once where it may build, with the same store"
            raise
        told = _told(session, adapter)
        return Ready(ready.booted.forward, told["tree"], tuple(told["changed"]), ready.artifact)


def _request(
    adapter: Adapter, variant: Variant, identity: Identity, options: Options
) -> BuildRequest:
    name = title_of(identity)
    source = Source(
        kind="module",
        name=name,
        factory=LiveRef(identity.module, identity.name, adapter),
        shapes=variant.shapes,
        code=identity.code,
        state=as_state(identity, dict(variant.state)),
    )
    return BuildRequest(
        source=source,
        model=ModelConfig(source=name, dtype=_dtype(adapter)),
        compilation=options.compilation,
        parallel=ParallelConfig(),
        target=Target.parse("cpu"),
        jobs=options.jobs,
    )


def _traced_once(call: Call, options: Options) -> Variant:
    """The variant; where a module is traced once, with the sizes of the call that comes first."""
    variant = call.variant
    if options.compilation.mode is not CompileMode.DYNAMO_TRACE_ONCE:
        return variant
    shapes = tuple(
        replace(
            shape,
            dims=tuple(
                replace(dim, example=size) if dim.dynamic else dim
                for dim, size in zip(shape.dims, call.tensors[shape.name].shape, strict=True)
            ),
        )
        for shape in variant.shapes
    )
    return replace(variant, shapes=shapes)


def _dtype(module: nn.Module) -> Dtype:
    """What an artifact is called by: of the first weight of floats; every tensor keeps its own."""
    names = (str(one.dtype).removeprefix("torch.") for one in module.parameters())
    known = {one.torch_name: one for one in Dtype}
    return next((known[name] for name in names if name in known), Dtype.FP32)


def _told(session: Session, adapter: Adapter) -> Mapping[str, Any]:
    """The form of the outputs: from the artifact, or from the trace where nothing is stored."""
    loaded = session.trail.loaded
    info = adapter.told if loaded is None else loaded.manifest.info
    found = info.get("outputs")
    if not isinstance(found, dict) or found.keys() != {"tree", "changed"}:
        raise IntegrityError("the artifact does not say what it returns", hint="rebuild it")
    names = found["changed"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise IntegrityError("the artifact's changed inputs are refused", repr(names)[:80])
    return found


def _signature_of(module: nn.Module) -> Callable[..., Any]:
    from vcc.engine.library.function import FunctionModule

    return module.function if isinstance(module, FunctionModule) else module.forward


def _check_inference(module: nn.Module) -> None:
    if any(one.training for one in module.modules()):
        raise UsageError(
            "the module is in training mode",
            "compiled code is for inference: dropout and statistics would be those of training",
            "call .eval() first",
        )


def _too_many(variants: Mapping[Variant, Ready]) -> UsageError:
    last = tuple(variants)[-1]
    return UsageError(
        f"{len(variants)} variants of one module",
        "each other size of a fixed dimension, and each other value that is no tensor, is compiled "
        f"by itself; the latest: {', '.join(map(str, (*last.shapes, *last.state)))}",
        "declare the dimension in dynamic_arg_dims, or give the value as a tensor",
    )
