"""The fields of a build in a prewarm file: the options of `vcc compile`, each with its check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vcc.cache.errors import VccError
from vcc.engine.config.checks import check_count, check_texts
from vcc.engine.config.parse import parse_config
from vcc.engine.config.spellings import (
    choose_kv_dtype,
    parse_compile_mode,
    parse_dtype,
    parse_graph_mode,
    parse_level,
    parse_sizes,
)
from vcc.engine.config.target import Target
from vcc.engine.models.shapes import parse_shapes


@dataclass(frozen=True, slots=True)
class Field:
    """One field.

    Attributes:
        kinds: types that its value may have, as TOML gives them; a bool is no int.
        check: raises VccError for a value that can mean nothing.
    """

    kinds: tuple[type, ...]
    check: Callable[[str, object], object]

    def wrong(self, name: str, value: object) -> str:
        """What is wrong with a value; empty when nothing is."""
        if type(value) not in self.kinds:
            wanted = " or ".join(_WORDS[kind] for kind in self.kinds)
            return f"{name} must be {wanted}, it is {_WORDS.get(type(value), 'something else')}"
        try:
            self.check(name, value)
        except VccError as error:
            return f"{error}; {error.hint}" if error.hint else str(error)
        return ""


_WORDS: Mapping[type, str] = {
    str: "text",
    int: "a whole number",
    list: "a list",
    dict: "a table",
    bool: "true or false",
    float: "a number with a point",
}


def _text(name: str, value: object) -> None:
    if not str(value).strip() or not str(value).isprintable():
        raise VccError(f"{name} must be printable text that is not empty")


def _sizes(name: str, value: object) -> None:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    parse_sizes(text, name)


def _inputs(name: str, value: object) -> None:
    parse_shapes(value if isinstance(value, list) else [str(value)])


_COUNT = Field((int,), lambda name, value: check_count(name, value, required=True))
_PLAIN = Field((str,), _text)

MATRIX: Mapping[str, Field] = {
    "target": Field((str,), lambda name, value: Target.parse(str(value))),
    "dtype": Field((str,), lambda name, value: parse_dtype(str(value))),
    "mode": Field((str,), lambda name, value: parse_graph_mode(str(value), "mode")),
}
"""Fields that may have several values: a build is made of each combination."""

OPTIONS: Mapping[str, Field] = {
    "kv_cache_dtype": Field((str,), choose_kv_dtype),
    "compile": Field((str,), lambda name, value: parse_compile_mode(str(value), "compile")),
    "opt_level": Field((int, str), lambda name, value: parse_level(str(value), "opt_level")),
    "shapes": Field((list, str), _sizes),
    "compilation_config": Field((dict,), lambda name, value: parse_config(_table(value))),
    "target_profile": _PLAIN,
    "weights": _PLAIN,
    "revision": _PLAIN,
    "trust_remote_code": Field((bool,), lambda name, value: value),
    "shape": Field((list, str), _inputs),
    "max_model_len": _COUNT,
    "max_num_seqs": _COUNT,
    "max_num_batched_tokens": _COUNT,
    "enable_lora": Field((bool,), lambda name, value: value),
    "max_loras": _COUNT,
    "max_lora_rank": _COUNT,
    "lora_target_modules": Field((list,), lambda name, value: check_texts(name, _tuple(value))),
}
"""Fields that have one value."""

MODEL = Field((str,), _text)


def _tuple(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, list) else ()


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
