"""Bindings of a model of `transformers`: which tensors of a checkpoint make which of its weights.

`transformers` renames and joins tensors while it loads: its own tables say how, so that a
checkpoint that it can load is bound here, or refused with the step that is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vcc.cache.errors import ModelError
from vcc.engine.models.bound_shape import names_in, shape_of
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
from vcc.engine.models.quant.stored import wrong_dtype
from vcc.engine.models.tensor_info import Shape, TensorInfo

SHOWN = 5


@dataclass(slots=True)
class _Group:
    """Tensors of a checkpoint that make a weight or several, by the pattern that each matched."""

    operations: tuple[Any, ...] = ()
    order: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    found: dict[str, list[str]] = field(default_factory=dict)


def bind(model: Any, tensors: Mapping[str, TensorInfo] | None) -> dict[str, Binding]:
    """A binding for each parameter and stored buffer of a model.

    Args:
        model: of `transformers`, without data.
        tensors: the checkpoint's; None or empty means as `transformers` would save it.

    Raises:
        ModelError: the checkpoint lacks a weight, has one more or of another shape or dtype, or
            stores one in a way that has no expression.
    """
    shapes = {name: info.shape for name, info in (tensors or {}).items()} or saved_shapes(model)
    wanted = {name: tuple(one.shape) for name, one in model.state_dict().items()}
    groups, strange = _groups(model, shapes, wanted)
    bindings = {
        name: one
        for first, group in groups.items()
        for name, one in _expressions(first, group, shapes).items()
    }
    _tie(model, wanted, bindings)
    odd = _dtype_problems(model, bindings, tensors or {})
    problems = [*_shape_problems(bindings, wanted, shapes), *odd, *strange]
    missing = [name for name in wanted if name not in bindings and not _may_lack(model, name)]
    problems = [f"{name} is missing" for name in missing] + problems
    if problems:
        raise _disagree(problems)
    return {name: bindings[name] for name in wanted if name in bindings}


def saved_shapes(model: Any) -> dict[str, Shape]:
    """Name and shape of every tensor that `transformers` writes for a model."""
    from transformers.core_model_loading import revert_weight_conversion

    tied = set(getattr(model, "all_tied_weights_keys", None) or {})
    own = {name: one for name, one in model.state_dict().items() if name not in tied}
    saved = revert_weight_conversion(model, own)
    return {name: tuple(one.shape) for name, one in saved.items()}


def _groups(
    model: Any, shapes: Iterable[str], wanted: Mapping[str, Shape]
) -> tuple[dict[str, _Group], list[str]]:
    """For each weight its tensors; and what belongs to none."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import (
        WeightConverter,
        WeightRenaming,
        dot_natural_key,
        rename_source_key,
    )

    table = get_model_conversion_mapping(model)
    renamings = [one for one in table if isinstance(one, WeightRenaming)]
    converters = [one for one in table if isinstance(one, WeightConverter)]
    by_pattern = {pattern: one for one in converters for pattern in one.source_patterns}
    prefix, state = model.base_model_prefix, model.state_dict()
    groups: dict[str, _Group] = {}
    strange = []
    for name in sorted(shapes, key=dot_natural_key):
        target, pattern = rename_source_key(name, renamings, converters, prefix, state)
        if target not in wanted and name in wanted:
            target, pattern = rename_source_key(name, [], [], prefix, state)
        if target not in wanted:
            strange += [] if _may_have(model, target) else [f"{name} is not part of the model"]
            continue
        group = groups.setdefault(target, _Group())
        if pattern is not None:
            converter = by_pattern[pattern]
            group.operations = tuple(converter.operations)
            group.order = tuple(converter.source_patterns)
            group.targets = tuple(converter.target_patterns)
        group.found.setdefault(pattern or "", []).append(name)
    return groups, strange


def _expressions(first: str, group: _Group, shapes: Mapping[str, Shape]) -> dict[str, Binding]:
    """What a group makes: one weight, or the equal parts of a tensor that holds several."""
    kinds = [(type(one).__name__, getattr(one, "dim", 0)) for one in group.operations]
    read = [name for names in group.found.values() for name in names]
    known = group.targets and group.targets[0] in first
    if kinds != [("Chunk", 0)] or len(read) != 1 or not known or not shapes[read[0]]:
        return {first: _expression(first, group)}
    before, _, after = first.partition(group.targets[0])
    names = [before + target + after for target in group.targets]
    rows = -(-shapes[read[0]][0] // len(names))  # parts that are not equal do not fit the config
    source = FromTensor(read[0])
    return {name: Rows(source, i * rows, (i + 1) * rows) for i, name in enumerate(names)}


def _expression(name: str, group: _Group) -> Binding:
    """What a converter's operations do to its tensors, as an expression."""
    if not group.operations:
        if len(group.found.get("", ())) != 1:
            raise _disagree([f"{name} is stored more than once"])
        return FromTensor(group.found[""][0])
    parts = [[FromTensor(one) for one in group.found.get(p, ())] for p in group.order]
    kinds = [(type(one).__name__, getattr(one, "dim", 0)) for one in group.operations]
    lists = [tuple(part) for part in parts if part]
    if kinds == [("MergeModulelist", 0)] and len(lists) == 1:
        return _stacked(lists)
    if kinds == [("MergeModulelist", 0), ("Concatenate", 1)]:
        return _stacked(lists)
    if kinds == [("Concatenate", 0)]:
        return Cat(tuple(one for part in lists for one in part))
    if kinds == [("Transpose", 0)] and len(lists) == 1 and len(lists[0]) == 1:
        return Transpose(lists[0][0])
    raise ModelError(
        f"how the checkpoint stores {name} is not supported",
        f"transformers makes it by {', '.join(kind for kind, _ in kinds)}",
        "save the model with another version of transformers, or use an architecture of the table",
    )


def _stacked(lists: list[tuple[FromTensor, ...]]) -> Binding:
    """Experts, each by its own tensors: one line where their names differ by a number."""
    rows = tuple(_beside(one) for one in zip(*lists, strict=True))
    marked = [FromTensor(_marked(one[0].name)) for one in lists]
    each = Each(_beside(marked), 0, len(rows))
    return each if "*" in marked[0].name and each.parts == rows else Stack(rows)


def _beside(parts: Sequence[FromTensor]) -> Binding:
    return Cat(tuple(parts)) if len(parts) > 1 else parts[0]


def _marked(name: str) -> str:
    """`*` for the last number 0 of a name, which is an expert's."""
    head, found, tail = name.rpartition(".0.")
    return f"{head}.*.{tail}" if found else name


def _tie(model: Any, wanted: Mapping[str, Shape], bindings: dict[str, Binding]) -> None:
    """Weights that are one tensor: the one that is not stored is the one that is.

    Where a checkpoint has both, each is its own: they are equal, or `transformers` unties them too.
    """
    pairs = dict(getattr(model, "all_tied_weights_keys", None) or {})
    for target, source in pairs.items():
        if target not in wanted or source not in wanted:
            continue
        if source not in bindings:
            target, source = source, target
        if source in bindings and target not in bindings:
            bindings[target] = Tied(source)


def _shape_problems(
    bindings: Mapping[str, Binding], wanted: Mapping[str, Shape], shapes: Mapping[str, Shape]
) -> list[str]:
    found = []
    for name, binding in bindings.items():
        if isinstance(binding, Tied):
            continue
        shape = shape_of(binding, shapes)
        if shape != wanted[name]:
            says = "is of tensors that do not fit together" if shape is None else list(shape)
            found.append(f"{name} is {says}, the config says {list(wanted[name])}")
    return found


def _dtype_problems(
    model: Any, bindings: Mapping[str, Binding], tensors: Mapping[str, TensorInfo]
) -> Iterator[str]:
    """Floating-point weights that are stored as something else."""
    floats = {name for name, one in model.state_dict().items() if one.is_floating_point()}
    read = {tensor for name in floats & bindings.keys() for tensor in names_in(bindings[name])}
    for name in sorted(read & tensors.keys()):
        if why := wrong_dtype(tensors[name].dtype, ""):
            yield f"{name} is {tensors[name].dtype}, {why}"


def _may_lack(model: Any, name: str) -> bool:
    """Whether `transformers` computes a weight that a checkpoint leaves out."""
    return _matches(getattr(model, "_keys_to_ignore_on_load_missing", None), name)


def _may_have(model: Any, name: str) -> bool:
    """Whether `transformers` passes over a tensor of old checkpoints."""
    own = {name for name, _ in model.named_buffers()}
    always = (r"rotary_emb\.inv_freq", r"(^|\.)position_ids$")
    return name in own or _matches(
        {*(getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()), *always}, name
    )


def _matches(patterns: Iterable[str] | None, name: str) -> bool:
    return any(re.search(pattern, name) for pattern in patterns or ())


def _disagree(problems: list[str]) -> ModelError:
    more = len(problems) - SHOWN
    shown = "; ".join(problems[:SHOWN]) + (f"; and {more} more" if more > 0 else "")
    return ModelError(
        "config.json and the weights disagree",
        shown,
        "use the config.json that belongs to this checkpoint",
    )
