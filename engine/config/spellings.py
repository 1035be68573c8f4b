"""The spellings of every closed choice: ours, vLLM's, numbers, and short command-line forms."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from vcc.cache.errors import ConfigError, DeviceError

from .checks import suggestion
from .modes import Backend, CompileMode, Dtype, GraphMode, KvDtype, OptLevel

Choice = TypeVar("Choice", bound=Enum)

COMPILE_MODES: Mapping[str, CompileMode] = {
    "vcc": CompileMode.VCC_COMPILE,
    "stock": CompileMode.STOCK_TORCH_COMPILE,
    "none": CompileMode.NO_COMPILATION,
    "trace_once": CompileMode.DYNAMO_TRACE_ONCE,
    **{mode.name.lower(): mode for mode in CompileMode},
    "vllm_compile": CompileMode.VCC_COMPILE,
    **{str(int(mode)): mode for mode in CompileMode},
}

COMPILE_WORDS: Mapping[CompileMode, str] = {
    mode: next(word for word, named in COMPILE_MODES.items() if named is mode)
    for mode in CompileMode
}
"""The short word of each mode, as a command line spells it."""

GRAPH_MODES: Mapping[str, GraphMode] = {
    **{mode.value: mode for mode in GraphMode},
    "0": GraphMode.NONE,
    "1": GraphMode.PIECEWISE,
    "2": GraphMode.FULL,
}

LEVELS: Mapping[str, OptLevel] = {
    **{level.name.lower(): level for level in OptLevel},
    **{f"-{level.name.lower()}": level for level in OptLevel},
    **{str(int(level)): level for level in OptLevel},
}
LEVEL_HINT = f"levels are {min(OptLevel):d} to {max(OptLevel):d}, as in -O{OptLevel.O2:d}"

BACKENDS: Mapping[str, Backend] = {one.value: one for one in Backend}

DTYPES: Mapping[str, Dtype] = {
    **{one.value: one for one in Dtype},
    **{one.torch_name: one for one in Dtype},
    "float": Dtype.FP32,
    "half": Dtype.FP16,
}


WITHOUT_KERNELS = frozenset({"fp8", "float8", "float8_e4m3fn", "float8_e5m2", "fp64", "double"})
"""Dtypes that are no slip of the pen: nothing here computes in them."""


def choose_dtype(field: str, raw: object) -> Dtype | None:
    """Read a dtype, as `choose`.

    Raises:
        DeviceError: a dtype that no platform has kernels for.
    """
    if isinstance(raw, str) and raw.strip().lower() in WITHOUT_KERNELS:
        raise DeviceError(
            f"{field} {raw} is not possible",
            "kernels exist for fp32 and bf16",
            f"use --{field} bf16",
        )
    return choose(field, raw, DTYPES)


AUTO = "auto"

KV_DTYPES: Mapping[str, KvDtype] = {"fp8": KvDtype.FP8, "fp8_e4m3": KvDtype.FP8}

OTHER_KV = {
    "fp8_e5m2": "with two bits of mantissa a value is off by up to an eighth",
    "fp8_inc": "it is another device's",
    "fp8_ds_mla": "it goes with latent attention",
    "int8": "kernels store floating-point numbers",
    "int4": "kernels store floating-point numbers",
    "nvfp4": "kernels store bytes",
}
"""KV caches of other engines, and why there are none of them here."""


def choose_kv_dtype(field: str, raw: object) -> KvDtype | None:
    """Read the element type of a KV cache; `auto` says nothing, as if it was left out.

    Raises:
        ConfigError: one that there are no kernels for.
    """
    text = raw.strip().lower().replace("-", "_") if isinstance(raw, str) else ""
    if text == AUTO:
        return None
    if text in OTHER_KV or text in DTYPES:
        raise ConfigError(
            f"{field} {raw} is not supported",
            OTHER_KV.get(text, "without fp8 a cache has the model's dtype"),
            f"known: {AUTO}, {', '.join(KV_DTYPES)}",
        )
    return choose(field, raw, {**KV_DTYPES, "float8_e4m3fn": KvDtype.FP8})


def choose(field: str, raw: object, spellings: Mapping[str, Choice]) -> Choice | None:
    """Read one spelling, in any case, with `-` for `_`; an int is read as its digits.

    Raises:
        ConfigError: another type, or no known spelling (with the closest one).
    """
    if raw is None:
        return None
    if isinstance(raw, Enum) and raw in spellings.values():
        return raw  # type: ignore[return-value]
    if isinstance(raw, bool) or not isinstance(raw, (str, int)):
        raise ConfigError(f"{field} must be a name", f"got {raw!r} ({type(raw).__name__})")
    text = str(raw).strip().lower()
    found = spellings.get(text, spellings.get(text.replace("-", "_")))
    if found is None:
        words = [one for one in spellings if one[0] != "-" and not one.isdigit()]
        hint = LEVEL_HINT if spellings is LEVELS else suggestion(text, words)
        raise ConfigError(f'unknown {field} "{raw}"', "", hint)
    return found


def parse_compile_mode(text: str | int, field: str = "compile mode") -> CompileMode:
    """`vcc`, `stock`, `none`, `VLLM_COMPILE`, `3`, …; ConfigError when unknown."""
    return _present(choose(field, text, COMPILE_MODES), field)


def parse_graph_mode(text: str | int, field: str = "graph mode") -> GraphMode:
    """`full`, `FULL_AND_PIECEWISE`, `1`, …; ConfigError when unknown."""
    return _present(choose(field, text, GRAPH_MODES), field)


def parse_level(text: str | int, field: str = "level") -> OptLevel:
    """`2`, `O2`, `-O2`; ConfigError when unknown."""
    return _present(choose(field, text, LEVELS), field)


def parse_dtype(text: str) -> Dtype:
    """`bf16`, `bfloat16`, `float32`, `half`, …; ConfigError when unknown."""
    return _present(choose_dtype("dtype", text), "dtype")


def _present(value: Choice | None, field: str) -> Choice:
    if value is None:
        raise ConfigError(f"{field} is missing")
    return value


LONGEST_NUMBER = 18
"""Digits of a size: below 2**63."""


def parse_sizes(text: str, field: str = "sizes") -> tuple[int, ...]:
    """Read `1,2,4,8` (spaces allowed) in the order given.

    Raises:
        ConfigError: empty, or an element that is not a positive whole number.
    """
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        plain = part.isascii() and part.isdigit() and len(part) <= LONGEST_NUMBER
        if not plain or int(part) == 0:
            raise ConfigError(
                f'cannot read {field} "{text}"',
                f'"{part}" is not a whole number of at least 1',
                "write for example 1,2,4,8",
            )
    return tuple(int(part) for part in parts)
