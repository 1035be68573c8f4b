"""What keys say of a model of `transformers`, and what is refused before a build. No torch.

Code follows from the config and from the sources of `transformers`. Names of tensors do not change
it: an artifact that was built without weights serves a checkpoint with other names once its
bindings are made anew, so the layout of a checkpoint is part of the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from vcc.cache.digest import Digest
from vcc.cache.errors import ConfigError, MissingArtifact, ModelError
from vcc.cache.extras import install
from vcc.engine.models.bindings import bindings_of
from vcc.engine.models.bound_shape import layout_of
from vcc.engine.models.checkpoint_forward import check_inputs, check_mask, forward_name
from vcc.engine.models.expression_text import parse
from vcc.engine.models.quant.stored import wrong_dtype
from vcc.engine.models.traced_spec import TracedSpec
from vcc.engine.models.transformers_sources import (
    forward_inputs,
    has_transformers,
    source_entries,
)

if TYPE_CHECKING:
    from vcc.engine.models.source import Source

LAYOUT, AS_SAVED = "layout", "as transformers saves it"


class WeightsLayout(MissingArtifact):
    """An artifact whose bindings are for tensors of other names or shapes: a miss."""

    id = "WEIGHTS_LAYOUT"


def is_traced(source: Source) -> bool:
    """Whether a source is a model that `transformers` defines."""
    if source.kind == "decoder":
        return isinstance(source.spec, TracedSpec)
    return source.is_checkpoint


def traced_code(source: Source) -> dict[str, str]:
    """Entries of the code key for a model of `transformers`; none for any other."""
    return source_entries(source.config) if is_traced(source) else {}


def traced_layout(source: Source) -> dict[str, str]:
    """Entries of the plan key: the tensors of the checkpoint, where it is at hand."""
    if not is_traced(source):
        return {}
    lines = sorted(f"{name} {list(one.shape)}\n" for name, one in source.tensors.items())
    return {"model.layout": Digest.of("".join(lines).encode()).hex if lines else AS_SAVED}


def check_traced(source: Source, *, recorded: bool) -> None:
    """Refuse what no build of a model of `transformers` can do.

    Args:
        source: any model.
        recorded: graphs are recorded on a GPU.

    Raises:
        ModelError: transformers is not installed, a weight is stored in a quantised dtype, or the
            forward has no input of a name, or not of its shape.
        ConfigError: such a model is to be recorded.
    """
    if not is_traced(source):
        return
    check_stored(source)
    if not has_transformers():
        raise ModelError(
            f"{source.name} needs transformers to be compiled",
            "its architecture is not built in, and transformers is not installed",
            f"{install('transformers')}; a finished artifact runs without it",
        )
    if source.is_checkpoint:
        _check_shapes(source)
    if recorded:
        raise ConfigError(
            f"{source.name} cannot be recorded",
            "graphs are recorded of built-in decoders and of factories",
            "use --compile vcc, which makes node tables without a GPU, or --target cpu",
        )


def _check_shapes(source: Source) -> None:
    check_mask(source.shapes)
    if known := _forward_inputs(source):
        check_inputs(str(forward_name(source.config)), [one.name for one in source.shapes], known)


def check_stored(source: Source) -> None:
    """Refuse a checkpoint whose headers have a dtype that no binding converts.

    Raises:
        ModelError: with the first such tensor.
    """
    for name, info in source.tensors.items():
        sure = "float" in info.dtype or name.endswith(_WEIGHTS)  # other integers may be buffers
        if sure and (why := wrong_dtype(info.dtype, "")):
            raise ModelError(
                "config.json and the weights disagree",
                f"{name} is {info.dtype}, {why}",
                "use the unquantised checkpoint of the model",
            )


_WEIGHTS = (".weight", ".bias")


def open_questions(source: Source) -> Iterator[str]:
    """What only a build finds out, since it makes the model; a line for each."""
    if is_traced(source) and source.tensors:
        yield f"a build finds out whether the weights are all that {source.name} needs"
    if source.is_checkpoint:
        known = "" if _forward_inputs(source) else "has these inputs and "
        yield f"a build finds out whether {forward_name(source.config)} {known}runs on their shapes"


def _forward_inputs(source: Source) -> tuple[str, ...] | None:
    return forward_inputs(str(forward_name(source.config)), source.config)


def binding_info(source: Source) -> dict[str, Any]:
    """`bindings` of the manifest, and for models of `transformers` the `layout` that they read.

    Raises:
        ModelError: config and weights disagree, or transformers is not there to tell.
    """
    if not is_traced(source):
        made = bindings_of(source.spec, source.tensors) if source.kind == "decoder" else {}
        return {"bindings": {name: str(one) for name, one in made.items()}} if made else {}
    from vcc.engine.models.transformers.bound import bound  # with torch

    bindings, shapes = bound(source)
    texts = {name: str(one) for name, one in bindings.items()}
    return {"bindings": texts, LAYOUT: layout_of(bindings.values(), shapes)}


def check_layout(source: Source, info: Mapping[str, Any]) -> None:
    """Refuse an artifact whose bindings read what this checkpoint does not have.

    Raises:
        ModelError: as `check_stored`.
        WeightsLayout: names or shapes differ; another artifact may fit, or a build makes one.
    """
    if is_traced(source):
        check_stored(source)
    bindings, told = info.get("bindings"), info.get(LAYOUT)
    if not is_traced(source) or not isinstance(bindings, Mapping):
        return
    shapes = {name: one.shape for name, one in source.tensors.items()}
    if layout_of((parse(text) for text in bindings.values()), shapes) != told:
        raise WeightsLayout(
            f"the artifact is for another layout of {source.name}",
            "its bindings read tensors that this checkpoint has not, or in another shape",
            "build it for this checkpoint: vcc compile",
        )
