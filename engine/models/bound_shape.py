"""What bindings read, without reading it: tensors, and the shapes that come out. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from vcc.cache.digest import Digest
from vcc.engine.models.expressions import (
    Binding,
    Cat,
    Each,
    FromTensor,
    Rows,
    Stack,
    Tied,
    Transpose,
)
from vcc.engine.models.tensor_info import Shape


def shape_of(binding: Binding, shapes: Mapping[str, Shape]) -> Shape | None:
    """The shape of an expression over tensors of these shapes; None where they do not fit.

    Args:
        binding: without `tied`, whose tensor has a binding of its own.
        shapes: of the checkpoint's tensors by name.
    """
    if isinstance(binding, FromTensor):
        return shapes.get(binding.name)
    if isinstance(binding, (Cat, Stack, Each)):
        return _joined(binding, [shape_of(part, shapes) for part in binding.parts])
    if isinstance(binding, (Rows, Transpose)):
        return _of_one(binding, shape_of(binding.source, shapes))
    return None


def _joined(binding: Cat | Stack | Each, parts: list[Shape | None]) -> Shape | None:
    known = [part for part in parts if part]
    if len(known) != len(parts) or not known:
        return None
    if isinstance(binding, Cat):
        same = {part[1:] for part in known}
        return (sum(part[0] for part in known), *known[0][1:]) if len(same) == 1 else None
    return (len(known), *known[0]) if len(set(known)) == 1 else None


def _of_one(binding: Rows | Transpose, shape: Shape | None) -> Shape | None:
    if not shape:
        return None
    if isinstance(binding, Transpose):
        return shape[::-1] if len(shape) == 2 else None
    return (binding.stop - binding.start, *shape[1:]) if binding.stop <= shape[0] else None


def names_in(binding: Binding) -> Iterator[str]:
    """The tensors that an expression reads."""
    if isinstance(binding, FromTensor):
        yield binding.name
    elif isinstance(binding, (Cat, Stack, Each)):
        for part in binding.parts:
            yield from names_in(part)
    elif not isinstance(binding, Tied):
        yield from names_in(binding.source)


def layout_of(bindings: Iterable[Binding], shapes: Mapping[str, Shape]) -> str:
    """A digest of the names and shapes of all tensors that bindings read."""
    names = sorted({name for binding in bindings for name in names_in(binding)})
    lines = (f"{name} {list(shapes.get(name, ())) if name in shapes else 'none'}" for name in names)
    return Digest.of("\n".join(lines).encode()).hex
