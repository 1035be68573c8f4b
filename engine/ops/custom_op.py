"""CustomOp: an nn.Module with one forward per back end, chosen once when it is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vcc.cache.errors import CompileError, UsageError
from vcc.engine.ops.backends import BACKENDS, NATIVE
from vcc.engine.ops.choice import OpChoice, Subject, choose
from vcc.engine.ops.register import load_ops
from vcc.engine.ops.schemas import NAMESPACE
from vcc.engine.ops.surfaces.call import laid_out, surface_ops
from vcc.engine.ops.surfaces.row import Row, Strides

THROUGH_TORCH = frozenset({"cpu", "cuda"})
"""Back ends whose kernels are called as operators of torch."""

FAKES = ("Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
"""What makes an operator run on tensors without data."""

_STRICTEST = (Strides.CONTIGUOUS, Strides.ROWS, Strides.ANY)


class CustomOp(nn.Module):
    """Base of the operator layers.

    A subclass sets `op` and defines `forward_native` (plain torch, what the compiler fuses). With
    `operators` and `forward_kernel` it has every back end whose surface lists those operators; a
    `forward_<back end>` of its own comes before the surface. Operators that are not ours have a
    `namespace` and `rows` of their own. Arguments that the chosen kernel does not take run through
    `forward_native`, and `refusals` says why.

    Constructing a layer for which the choice holds a replacement builds the replacement, which must
    be a subclass; the forwards that it defines by itself come first.

    Args:
        choice: enabled operators, platform, install and replacements.
        facts: numbers of the layer that a kernel may limit, such as `width`.

    Raises:
        UsageError: a replacement that is no subclass, or an operator that is not registered.
        CompileError: an operator without a fake, which no trace could pass.
    """

    op: ClassVar[str]
    operators: ClassVar[tuple[str, ...]] = ()
    namespace: ClassVar[str] = "vcc"
    rows: ClassVar[Mapping[str, Mapping[str, Row]]] = {}
    replaces: ClassVar[str] = ""

    def __new__(cls, *_: Any, choice: OpChoice | None = None, **__: Any) -> CustomOp:
        other = choice.replacement(cls.__name__) if choice else None
        if other is None:
            return super().__new__(cls)
        check_replaces(other, cls)
        return super().__new__(other)

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        if "forward_rocm" in vars(cls) and "forward_hip" not in vars(cls):
            cls.forward_hip = cls.forward_rocm  # type: ignore[method-assign]

    def __init__(self, choice: OpChoice | None = None, **facts: float) -> None:
        super().__init__()
        choice = choice or OpChoice()
        subject = subject_of(type(self), choice)
        self.route = choose(subject, choice, facts)
        self.method, self.choice_reason = self.route.method, self.route.reason
        self.refusals: list[str] = []
        if self.route.backend in THROUGH_TORCH and not _defined(type(self), self.method):
            _check_operators(self.namespace, self.operators)
        rows = _rows(type(self), subject, self.route.backend)
        self._dtypes = _dtypes(rows)
        self._strides = min((row.strides for row in rows), key=_STRICTEST.index, default=None)

    @classmethod
    def register_oot(cls, name: str = "") -> Callable[[type], type]:
        """Mark a class as an out-of-tree replacement of a layer.

        The mark changes nothing by itself: a configuration (`"+rms_norm=package.module:Class"`) or
        `OpChoice.replacing` chooses it.

        Args:
            name: the layer; by default the one that this is called on.

        Raises:
            UsageError: the class is no subclass of the layer.
        """

        def mark(layer: type) -> type:
            replaced = name or cls.__name__
            bases = {base.__name__: base for base in layer.__mro__[1:]}
            if replaced not in bases:
                raise _no_subclass(layer, replaced)
            layer.replaces = replaced  # type: ignore[attr-defined]
            return layer

        return mark

    def forward(self, *args: Any) -> Any:
        """Run the forward that was chosen at construction, where it takes the arguments."""
        strides = self._strides
        if strides is None:
            return getattr(self, self.method)(*args)
        if not self._takes(self.alike(*args)):
            return self._refused(args)
        if strides is not Strides.ANY:
            args = tuple([laid_out(a, strides) if a is not None else a for a in args])
        return getattr(self, self.method)(*args)

    def alike(self, *args: Any) -> Sequence[Tensor | None]:
        """The tensors that a kernel wants in one element type that it knows."""
        return args

    def _takes(self, tensors: Sequence[Tensor | None]) -> bool:
        """Whether they have one element type, one that the kernel knows; costs every call."""
        first = None
        for tensor in tensors:
            if tensor is None:
                continue
            dtype = tensor.dtype
            if first is None:
                if dtype not in self._dtypes:
                    return False
                first = dtype
            elif dtype is not first:
                return False
        return True

    def _refused(self, args: tuple[Any, ...]) -> Any:
        """The native body in the place of a kernel that does not take these arguments."""
        found = dict.fromkeys(_word(one.dtype) for one in self.alike(*args) if one is not None)
        first = next(iter(found))
        why = f"{self.op}: {self.route.backend} does not take {first}"
        if len(found) > 1:
            types = " with ".join(found)
            why = f"{self.op}: {self.route.backend} takes one element type, not {types}"
        if why not in self.refusals:
            self.refusals.append(why)
        return self.forward_native(*args)

    def forward_native(self, *args: Any) -> Any:
        """Plain torch; every layer has it."""
        raise NotImplementedError(type(self).__name__)

    def forward_kernel(self, ops: Any, *args: Any) -> Any:
        """The layer in terms of its operators.

        Args:
            ops: has the operators of `torch.ops.vcc` as attributes, whosever they are.
            args: of the layer.
        """
        raise NotImplementedError(type(self).__name__)

    def forward_cpu(self, *args: Any) -> Any:
        """The kernels of `libvcc_ops`."""
        return self.forward_kernel(getattr(torch.ops, self.namespace), *args)

    def forward_cuda(self, *args: Any) -> Any:
        """The kernels of `csrc/kernels`."""
        return self.forward_kernel(getattr(torch.ops, self.namespace), *args)

    def forward_triton(self, *args: Any) -> Any:
        """The Triton kernels, each one launch of the piece it is traced into."""
        return self.forward_kernel(surface_ops("triton"), *args)

    def forward_hip(self, *args: Any) -> Any:
        """AITER's kernels; `forward_rocm` is another name."""
        return self.forward_kernel(surface_ops("hip"), *args)

    def forward_rocm(self, *args: Any) -> Any:
        """`forward_hip` under the platform's name."""
        return self.forward_hip(*args)

    def forward_xpu(self, *args: Any) -> Any:
        """The kernels of vllm-xpu-kernels."""
        return self.forward_kernel(surface_ops("xpu"), *args)

    def forward_oot(self, *args: Any) -> Any:
        """An out-of-tree class's own forward."""
        return self.forward_native(*args)


def subject_of(layer: type[CustomOp], choice: OpChoice) -> Subject:
    """A layer class as `choose` sees it: what it defines by itself, and what it replaces."""
    own = frozenset(name for name in BACKENDS if _defined(layer, BACKENDS[name].method))
    replaced = _replaced(layer, choice)
    below = layer.__mro__[: layer.__mro__.index(replaced)] if replaced else ()
    first = {n for n in BACKENDS if any(BACKENDS[n].method in vars(base) for base in below)}
    own -= {NATIVE}
    return Subject(layer.op, layer.__name__, layer.operators, own, frozenset(first), layer.rows)


def check_replaces(other: type, layer: type) -> None:
    """Refuse a replacement that is not a subclass, or that was registered for another layer.

    Raises:
        UsageError: either.
    """
    if not issubclass(other, layer):
        raise _no_subclass(other, layer.__name__)
    meant = getattr(other, "replaces", "")
    if meant and meant != layer.__name__:
        raise UsageError(
            f"cannot replace the layer {layer.__name__} by {other.__name__}",
            f"{other.__name__} is registered for {meant}",
        )


def _no_subclass(other: type, layer: str) -> UsageError:
    return UsageError(
        f"cannot replace the layer {layer} by {other.__name__}",
        f"{other.__name__} is not a subclass of {layer}",
    )


def _check_operators(namespace: str, names: Sequence[str]) -> None:
    """Every operator that a layer calls is there, and has a fake: said here, not by a trace."""
    if namespace == NAMESPACE:
        load_ops()
        return
    for name in names:
        operator = f"{namespace}::{name}"
        found = getattr(getattr(torch.ops, namespace), name, None)
        if found is None:
            raise UsageError(
                f"the operator {operator} is not registered",
                "nothing has defined it in this process",
                "import the module that defines it first",
            )
        if not any(found.default.has_kernel_for_dispatch_key(key) for key in FAKES):
            raise CompileError(
                f"the operator {operator} has no fake implementation",
                "tracing needs the shape and dtype of its result without its data",
                f'register one: @torch.library.register_fake("{operator}")',
            )


def _defined(layer: type, method: str) -> bool:
    return getattr(layer, method) is not getattr(CustomOp, method)


def _replaced(layer: type, choice: OpChoice) -> type | None:
    """The layer whose place a class takes, or None."""
    names = {name for name, other in choice.replacements if other is layer}
    return next((base for base in layer.__mro__[1:] if base.__name__ in names), None)


def _rows(layer: type[CustomOp], subject: Subject, backend: str) -> tuple[Row, ...]:
    """What is known of the chosen kernels; nothing of a forward that a class defines by itself."""
    if _defined(layer, BACKENDS[backend].method):
        return ()
    surface = subject.surface(backend)
    return tuple(surface[op] for op in layer.operators if op in surface)


def _dtypes(rows: Sequence[Row]) -> frozenset[torch.dtype]:
    sets = [{getattr(torch, name) for name in row.dtypes} for row in rows]
    return frozenset(set.intersection(*sets)) if sets else frozenset()


def _word(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")
