"""Defaults of generation: what `generation_config.json` says and what the user overrides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral

from vcc.cache.errors import ModelError
from vcc.engine.runtime.kinds import Kinds, check_kinds
from vcc.engine.runtime.sample import KINDS as SAMPLING_KINDS
from vcc.engine.runtime.sample import SamplingParams

MAX_NEW_TOKENS = 64

LARGEST = 1 << 62
"""No number of a model's config is beyond it."""

# Fields that change the answer and are not implemented: value that means "off".
_IGNORED: dict[str, tuple[object, ...]] = {
    "repetition_penalty": (None, 1, 1.0),
    "no_repeat_ngram_size": (None, 0),
    "min_p": (None, 0, 0.0),
    "typical_p": (None, 1, 1.0),
    "num_beams": (None, 1),
    "suppress_tokens": (None, []),
    "forced_bos_token_id": (None,),
}


_KINDS: Kinds = {
    **SAMPLING_KINDS,
    "max_new_tokens": (Integral, "a whole number"),
    "ignore_eos": (bool, "true or false"),
}
_UNSET = frozenset(_KINDS) - {"seed", "ignore_eos"}


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the user said; None keeps the model's default.

    Raises:
        UsageError: a value is of another kind.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    max_new_tokens: int | None = None
    seed: int = 0
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        check_kinds(self, _KINDS, unset=_UNSET)


NOTHING_SAID = Overrides()


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """How to generate, resolved.

    Attributes:
        params: sampling.
        max_new_tokens: most tokens of an answer.
        eos: ids that end an answer.
        notes: fields of the model's config that vcc does not follow, one line each.
    """

    params: SamplingParams
    max_new_tokens: int
    eos: frozenset[int]
    notes: tuple[str, ...]


def resolve_generation(generation: Mapping[str, object], user: Overrides) -> GenerationDefaults:
    """Merge what the user said over `generation_config.json`.

    Without `do_sample` in the model's config, decoding is greedy unless the user names a
    temperature, top-k or top-p.

    Raises:
        ModelError: a field of the model's config has a wrong type.
        UsageError: a value is out of range.
    """
    asked = any(v is not None for v in (user.temperature, user.top_k, user.top_p))
    sampling = asked or generation.get("do_sample") is True
    most = _number(generation, "max_new_tokens", MAX_NEW_TOKENS)
    eos = generation.get("eos_token_id")
    return GenerationDefaults(
        params=_params(generation, user) if sampling else SamplingParams(seed=user.seed),
        max_new_tokens=int(most) if user.max_new_tokens is None else user.max_new_tokens,
        eos=frozenset() if user.ignore_eos else _eos(eos),
        notes=tuple(_notes(generation)),
    )


def _params(generation: Mapping[str, object], user: Overrides) -> SamplingParams:
    def value(name: str, said: float | None, default: float) -> float:
        return _number(generation, name, default) if said is None else said

    return SamplingParams(
        temperature=value("temperature", user.temperature, 1.0),
        top_k=int(value("top_k", user.top_k, 0)),
        top_p=value("top_p", user.top_p, 1.0),
        seed=user.seed,
    )


def _number(generation: Mapping[str, object], name: str, default: float) -> float:
    found = generation.get(name)
    if found is None:
        return default
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise _refused(name, found, "a number is expected")
    if not -LARGEST <= found <= LARGEST:  # nor a NaN
        raise _refused(name, found, "that is no usable one")
    return found


def _eos(found: object) -> frozenset[int]:
    ids = found if isinstance(found, list) else [] if found is None else [found]
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in ids):
        raise _refused("eos_token_id", found, "a token id or a list of them is expected")
    return frozenset(ids)


def _refused(name: str, found: object, why: str) -> ModelError:
    return ModelError(
        f"generation_config.json: {name} is {found!r:.80}",
        why,
        f"mend {name} in the checkpoint's files, or take them anew from where the model is",
    )


def _notes(generation: Mapping[str, object]) -> list[str]:
    return [
        f"generation_config.json asks for {name} = {generation[name]!r}, which is not followed"
        for name, off in _IGNORED.items()
        if name in generation and generation[name] not in off
    ]
