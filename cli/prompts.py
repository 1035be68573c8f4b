"""Prompts: from --prompt, from a file of lines or JSON, or from standard input."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vcc.cache.errors import UsageError
from vcc.cache.named_files import read_named
from vcc.engine.prompt import Prompt

MOST = 256 << 20
"""Most bytes of a file of prompts, and most characters of standard input."""

_FORMS = (
    'one prompt a line, or a JSON list of texts or token-id lists: ["a", [1, 2]], '
    'also as {"prompt": "a", "lora": "NAME"}'
)


def read_prompts(texts: Sequence[str], file: Path | None) -> tuple[Prompt, ...]:
    """All prompts: those on the command line, then those of the file.

    Args:
        texts: values of --prompt.
        file: value of --prompts; `-` is standard input.

    Raises:
        UsageError: no prompt, or a file that cannot be read.
    """
    prompts = [Prompt(text=text) for text in texts]
    if file is not None:
        prompts += _parse(_text(file), str(file))
    elif not texts and sys.stdin is not None and not sys.stdin.isatty():
        piped = _text(Path("-"))
        prompts += [Prompt(text=piped.rstrip("\n"))] if piped.strip() else []
    if not prompts:
        raise UsageError(
            "there is no prompt",
            "neither --prompt nor --prompts gave one" if file is None else f"{file} is empty",
            'add --prompt "Once upon a time", or pipe the text in',
        )
    for index, prompt in enumerate(prompts):
        _check_text(prompt.text or "", index)
    return tuple(prompts)


def _check_text(text: str, index: int) -> None:
    """Bytes that are no UTF-8 arrive as lone surrogates, which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"prompt {index} is not valid Unicode", str(error), "use UTF-8") from error


def _text(file: Path) -> str:
    try:
        if str(file) == "-":
            found: str | bytes = "" if sys.stdin is None else sys.stdin.read(MOST + 1)
        else:
            found = read_named(file, MOST)
        if len(found) > MOST:
            raise OSError(f"more than {MOST >> 20} MiB")
        text = found if isinstance(found, str) else found.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read prompts from {file}", str(error), _FORMS) from error
    return text.replace("\r\n", "\n")


def _parse(text: str, name: str) -> list[Prompt]:
    found = _json_list(text, name)
    if found is None:
        return [Prompt(text=line) for line in text.splitlines() if line.strip()]
    return [_prompt(item, index, name) for index, item in enumerate(found)]


def _json_list(text: str, name: str) -> list[Any] | None:
    """The list, or None for a file of lines (which may begin with a bracket too)."""
    must = name.endswith(".json")
    if not must and not text.lstrip().startswith("["):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        if must:
            raise UsageError(f"{name} is not valid JSON", str(error), _FORMS) from error
        return None
    if isinstance(found, list):
        return found
    raise UsageError(f"{name} is no list of prompts", f"it is {type(found).__name__}", _FORMS)


def _prompt(item: object, index: int, name: str) -> Prompt:
    if isinstance(item, str):
        return Prompt(text=item)
    if isinstance(item, dict) and item.keys() == {"prompt", "lora"}:
        lora = item["lora"]
        if isinstance(lora, str) or lora is None:
            return replace(_prompt(item["prompt"], index, name), lora=lora or "")
    if isinstance(item, list) and all(type(token) is int for token in item):
        return Prompt(token_ids=tuple(item))
    raise UsageError(
        f"prompt {index} of {name} is neither text nor token ids", repr(item)[:80], _FORMS
    )
