"""Encoders and vision models in a directory: plain forwards of `transformers`. Torch-free.

They have no KV cache and no prompts; they are compiled like a factory's module, with declared input
shapes, and their weights come from the directory by bindings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vcc.cache.errors import ModelError
from vcc.engine.models.config_fields import mend, positive
from vcc.engine.models.factory import FactoryRef
from vcc.engine.models.shapes import InputShape, parse_shapes
from vcc.engine.models.traced_spec import (
    ENDINGS,
    POSITIONS,
    canonical_config,
    config_entries,
    refuse_quantised,
)
from vcc.engine.models.transformers_sources import may_have

Config = Mapping[str, Any]

FORWARDS = (
    "Model",
    *("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"),
    *("ForQuestionAnswering", "ForMultipleChoice", "ForImageClassification", "Backbone"),
    *("ForSemanticSegmentation", "ForMaskedImageModeling", "ForTextEncoding"),
    *("ModelWithProjection", "ForImageClassificationWithTeacher", "ForDepthEstimation"),
    *("ForObjectDetection", "ForVideoClassification", "ForAudioClassification", "ForCTC"),
    *("ForNextSentencePrediction", "ForPreTraining"),
)
"""How `transformers` calls models that are one forward, by the ends of their names."""

MOST_ROWS, MOST_TOKENS = 8, 512
"""Of inputs that nobody declares."""

AFTER_PADDING = frozenset({"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet"})
"""Families whose first position comes after that of the padding token."""


@dataclass(frozen=True, slots=True)
class CheckpointRef(FactoryRef):
    """A model of `transformers` in the place of a factory.

    Attributes:
        text: its config as canonical JSON.
    """

    text: str = ""


def forward_name(config: Config) -> str | None:
    """The architecture of a plain forward; None where the config is of another kind of model."""
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if not isinstance(name, str) or name.endswith(ENDINGS) or not name.endswith(FORWARDS):
        return None
    return name if may_have(name, config) else None


def checkpoint_ref(config: Config) -> CheckpointRef:
    """What stands for the factory.

    Raises:
        ModelError: a setting that is not supported.
    """
    name = forward_name(config)
    if name is None:
        raise ModelError("config.json is of no plain forward", "its architecture is another kind")
    refuse_quantised(config)
    if config.get("is_encoder_decoder"):
        raise ModelError(
            f"architecture {name} is not supported",
            "it is an encoder and a decoder that share one call",
            "compile its encoder by module:factory",
        )
    return CheckpointRef("transformers", name, canonical_config(config))


def forward_entries(config: Config, shapes: tuple[InputShape, ...]) -> tuple[tuple[str, str], ...]:
    """What a request says of the model: its config and its inputs."""
    return (
        ("model.architecture", str(forward_name(config))),
        *config_entries(config),
        *((f"model.shape.{shape.name}", str(shape)) for shape in shapes),
    )


IDS = frozenset({"input_ids", "attention_mask", "token_type_ids", "position_ids"})
"""Inputs that hold whole numbers in all models of `transformers`."""


def declared_shapes(texts: Sequence[str]) -> tuple[InputShape, ...]:
    """Shapes as `parse_shapes` reads them; ids and masks without a dtype are int64."""
    return tuple(
        replace(shape, dtype="int64") if shape.dtype is None and shape.name in IDS else shape
        for shape in parse_shapes(texts)
    )


def check_inputs(architecture: str, names: Iterable[str], known: Collection[str]) -> None:
    """Refuse inputs that a model's forward does not take.

    Raises:
        ModelError: with the first of them, and those that there are.
    """
    if unknown := [name for name in names if name not in known]:
        raise ModelError(
            f"{architecture} has no input {unknown[0]}",
            f"it has: {', '.join([*known][:12])}",
            "--shape names the inputs that are used",
        )


def check_mask(shapes: Iterable[InputShape]) -> None:
    """Refuse a mask that is not of the token ids.

    Without data nothing shows it: a model looks its rows up by number.

    Raises:
        ModelError: with both shapes.
    """
    named = {shape.name: shape for shape in shapes}
    ids, mask = named.get("input_ids"), named.get("attention_mask")
    if ids is None or mask is None or len(ids.dims) != len(mask.dims):
        return
    if any((a.low, a.high) != (b.low, b.high) for a, b in zip(ids.dims, mask.dims, strict=True)):
        raise ModelError(
            "attention_mask has other sizes than input_ids",
            f"declared are {mask} and {ids}",
            "give both the same sizes: --shape input_ids=B@1-8x16 --shape attention_mask=B@1-8x16",
        )


def default_shapes(config: Config) -> tuple[InputShape, ...]:
    """Inputs of a text or a vision model where nobody declares them.

    Raises:
        ModelError: the config does not tell which of the two it is.
    """
    text, vision = "vocab_size" in config, "image_size" in config or "num_channels" in config
    if text == vision:
        raise ModelError(
            "the inputs of the model are not declared",
            "config.json does not tell whether they are tokens or images",
            "name each: --shape input_ids=1-8x1-128:int64",
        )
    return _text_shapes(config) if text else _vision_shapes(config)


def _text_shapes(config: Config) -> tuple[InputShape, ...]:
    names = ["input_ids", "attention_mask"]
    types = config.get("type_vocab_size")
    if isinstance(types, int) and types > 1:
        names.append("token_type_ids")
    sizes = f"B@1-{MOST_ROWS}xS@1-{_longest(config)}"
    return parse_shapes([f"{name}={sizes}:int64" for name in names])


def _longest(config: Config) -> int:
    limit = most_positions(config)
    return MOST_TOKENS if limit is None else max(2, min(MOST_TOKENS, limit.tokens))


@dataclass(frozen=True, slots=True)
class Limit:
    """The longest text that a config has positions for.

    Attributes:
        field: which field says so.
        value: what it says.
        tokens: how many of them a text can have.
    """

    field: str
    value: int
    tokens: int


def most_positions(config: Config) -> Limit | None:
    """The limit of a config; None where it has none."""
    field = next((name for name in POSITIONS if config.get(name) is not None), None)
    if field is None:
        return None
    lost = 0
    if config.get("model_type") in AFTER_PADDING:
        lost = positive(config, "pad_token_id", 1) + 1
    value = positive(config, field)
    return Limit(field, value, value - lost)


def too_long(config: Config, shapes: Iterable[InputShape]) -> ModelError | None:
    """What to say of token ids that are longer than the config has positions for; or None.

    A limit of a config is not always one of the model, so this is asked where the model has a
    table of positions, or has failed.
    """
    limit = most_positions(config)
    ids = next((one for one in shapes if one.name == "input_ids" and len(one.dims) == 2), None)
    if limit is None or ids is None or ids.dims[1].high <= limit.tokens:
        return None
    return ModelError(
        f"input_ids has positions above {limit.field} ({limit.value})",
        f"declared is {ids}",
        f"declare at most {limit.tokens} tokens a row: --shape input_ids=1-8x1-{limit.tokens}",
    )


def _vision_shapes(config: Config) -> tuple[InputShape, ...]:
    size = config.get("image_size", 224)
    sizes = list(size) if isinstance(size, (list, tuple)) else [size, size]
    if len(sizes) != 2 or any(type(one) is not int or one < 1 for one in sizes):
        raise ModelError(
            "image_size of config.json is no size", f"it is {size!r:.80}", mend("image_size")
        )
    channels = positive(config, "num_channels", 3)
    return parse_shapes([f"pixel_values=B@1-{MOST_ROWS}x{channels}x{sizes[0]}x{sizes[1]}"])
