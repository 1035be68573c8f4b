"""Names of modules in quantisation configs: whole names, or `re:` and a regular expression.

An expression comes with a download and runs on every module's name, so only short ones that cannot
run for long are taken: few repetitions, none of a group, and no comments, which hide one.
"""

from __future__ import annotations

import re
from functools import lru_cache

from vcc.cache.errors import ModelError

EXPRESSION, UNDER = "re:", "under:"
LONGEST, MOST_REPEATS = 200, 3

_REPEAT = re.compile(r"(?<!\\)(?:[*+]|(?<!\()\?|\{)")
_REPEATED_GROUP = re.compile(r"\)[*+?{]")
_FLAGS_OR_COMMENT = re.compile(r"\(\?[a-zA-Z#-](?!<)")


def matches(pattern: str, module: str) -> bool:
    """Whether a pattern of `targets` or `ignore` means a module.

    Raises:
        ModelError: its regular expression is broken, or could run for long.
    """
    if pattern.startswith(EXPRESSION):
        return _compiled(pattern.removeprefix(EXPRESSION)).match(module) is not None
    if pattern.startswith(UNDER):
        name = pattern.removeprefix(UNDER)
        return module == name or module.startswith(f"{name}.")
    return pattern == module


def any_matches(patterns: tuple[str, ...], module: str) -> bool:
    """Whether one of the patterns means a module; names are looked up, expressions are tried.

    Raises:
        ModelError: as `matches`.
    """
    names, above, expressions = _sorted(patterns)
    if module in names or module in above:
        return True
    ends = (at for at, letter in enumerate(module) if letter == ".")
    if above and any(module[:end] in above for end in ends):
        return True
    return any(matches(one, module) for one in expressions)


@lru_cache(maxsize=64)
def _sorted(
    patterns: tuple[str, ...],
) -> tuple[frozenset[str], frozenset[str], tuple[str, ...]]:
    """Plain names, modules with all below them, and expressions."""
    expressions = tuple(one for one in patterns if one.startswith(EXPRESSION))
    above = frozenset(one.removeprefix(UNDER) for one in patterns if one.startswith(UNDER))
    return frozenset(patterns), above, expressions


@lru_cache(maxsize=4096)
def _compiled(text: str) -> re.Pattern[str]:
    if len(text) > LONGEST or len(_REPEAT.findall(text)) > MOST_REPEATS:
        raise _refused(text, f"it has more than {LONGEST} characters or {MOST_REPEATS} repetitions")
    if _FLAGS_OR_COMMENT.search(text):
        raise _refused(text, "it sets flags or has a comment")
    if _REPEATED_GROUP.search(text):
        raise _refused(text, "it repeats a group")
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise _refused(text, str(error)) from error


def _refused(text: str, why: str) -> ModelError:
    return ModelError(
        f"the pattern {text[:60]!r} of quantization_config is not taken",
        why,
        "name the modules in ignore, or use a simpler expression",
    )
