"""Experts of a quantised checkpoint: which are fp8, their scales, what is refused. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from vcc.engine.models.expressions import NUMBER
from vcc.engine.models.quant.fields import refused
from vcc.engine.models.quant.spec import QuantSpec
from vcc.engine.models.quant.weights import Scales, Source, scales_of

CONVERTED = "fp8"
"""The method that converts projections alone: a router is none in `transformers`."""


@lru_cache(maxsize=4096)
def experts_in_fp8(quant: QuantSpec, block: str, names: tuple[str, ...], count: int) -> bool:
    """Whether the experts of a layer are quantised.

    Args:
        quant: the scheme.
        block: the module of a sparse layer.
        names: of the projections of an expert.
        count: how many experts there are.

    Raises:
        ModelError: some are and some are not.
    """
    modules = [f"{block}.experts.{i}.{name}" for i in range(count) for name in names]
    return quant.covers(modules, "experts of one layer, which are stacked")


def refuse_stacked(block: str) -> None:
    """Refuse fp8 experts that a checkpoint stores as one tensor.

    Raises:
        ModelError: always.
    """
    raise refused(
        "stacked fp8 experts are not supported",
        f"{block}.experts are one tensor, and scales are known by expert and projection",
    )


def refuse_routers(quant: QuantSpec | None, block: str, *, shared: bool) -> None:
    """Refuse fp8 routers.

    Args:
        quant: the scheme, or None.
        block: the module of a sparse layer.
        shared: it has an expert that every token has, which a gate weighs.

    Raises:
        ModelError: one is quantised.
    """
    if quant is None:
        return
    routers = [f"{block}.shared_expert_gate"] if shared else []
    routers += [] if quant.method == CONVERTED else [f"{block}.gate"]
    found = next((router for router in routers if quant.covers([router])), "")
    if found:
        raise refused("fp8 routers are not supported", f"{found} is quantised; name it in ignore")


def expert_scales(
    quant: QuantSpec, parameter: str, sources: tuple[Source, ...], inner: int, count: int
) -> Iterator[Scales]:
    """The scales of one projection of all experts, stacked.

    Args:
        quant: the scheme.
        parameter: of the stacked weights.
        sources: its parts in order, NUMBER where an expert's number stands.
        inner: columns of its weight.
        count: how many experts there are.

    Raises:
        ModelError: blocks of a part do not begin where the part does.
    """
    own = tuple((name.replace(NUMBER, "0"), rows) for name, rows in sources)
    list(scales_of(quant, parameter, own, inner))  # an error names a tensor that exists
    for one in scales_of(quant, parameter, sources, inner):
        last = one.parameter.removeprefix(f"{parameter}.").replace("weight_", "")
        yield replace(one, parameter=f"{parameter}_{last}", each=count, rows=())
