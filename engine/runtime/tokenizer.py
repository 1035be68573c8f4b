"""Tokenizer: text to token ids and back, one token at a time, never half a character."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vcc.cache.errors import ModelError, UsageError
from vcc.cache.named_files import read_named
from vcc.engine.models.json_file import LARGEST

if TYPE_CHECKING:
    import tokenizers

_CHARACTERS = 16
"""Characters to a token of the context that are encoded on trial; text has about four."""

_REPLACEMENT = "\ufffd"
_IDS_HINT = "give token ids instead: --prompts FILE with a JSON list such as [[1, 15, 27]]"


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """The tokenizer of a model directory.

    Attributes:
        model: the loaded `tokenizer.json`.
        settings: `tokenizer_config.json`, empty when there is none.
        directory: where both lie.
    """

    model: tokenizers.Tokenizer
    settings: dict[str, object]
    directory: Path

    def encode(self, text: str, *, special_tokens: bool = True) -> tuple[int, ...]:
        """Token ids of a prompt, with the model's own start tokens unless told otherwise.

        Raises:
            ModelError: the tokenizer's own settings make it fail.
        """
        try:
            return tuple(self.model.encode(text, add_special_tokens=special_tokens).ids)
        except BaseException as error:
            # A broken template ends in a panic of the library, which is no Exception.
            if isinstance(error, Exception) or type(error).__name__ == "PanicException":
                raise _cannot_encode(error) from error
            raise

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out."""
        return str(self.model.decode(list(token_ids), skip_special_tokens=True))


def check_text(tokenizer: Tokenizer, text: str, context: int) -> None:
    """Refuse a text that is far too long by its beginning: encoding all of it may take minutes.

    Args:
        tokenizer: of the model.
        text: the prompt.
        context: tokens that a sequence can have.

    Raises:
        UsageError: the beginning alone has more than twice as many tokens.
    """
    head = text[: context * _CHARACTERS]
    if len(head) == len(text):
        return
    count = len(tokenizer.encode(head, special_tokens=False))
    if count > 2 * context:
        raise UsageError(
            "the prompt is too long",
            f"its first {len(head)} of {len(text)} characters are {count} tokens, the context "
            f"holds {context}, the answer included",
            "shorten the prompt, or compile with a larger --max-model-len",
        )


def _cannot_encode(error: BaseException) -> ModelError:
    why = f"{type(error).__name__}: {error}"[:300]
    return ModelError("the tokenizer cannot encode a prompt", why, "check tokenizer.json")


def open_tokenizer(path: Path | None) -> Tokenizer:
    """Read a `tokenizer.json` and the `tokenizer_config.json` beside it.

    Raises:
        ModelError: there is none, or it cannot be read.
    """
    if path is None or not path.is_file():
        why = "there is no tokenizer.json" if path is None else f"{path} does not exist"
        raise ModelError("the model has no tokenizer", why, _IDS_HINT)
    from tokenizers import Tokenizer as Model

    try:
        model = Model.from_file(str(path))
    except Exception as error:  # the library raises bare Exception for every kind of damage
        raise ModelError("the tokenizer cannot be read", f"{path}: {error}", _IDS_HINT) from error
    # Settings meant for training batches; a prompt is taken as it is and checked by the engine.
    model.no_truncation()
    model.no_padding()
    return Tokenizer(model, _settings(path.with_name("tokenizer_config.json")), path.parent)


class Detokenizer:
    """Turns the tokens of one answer into text as they come.

    The parts joined are the text of all tokens decoded at once, if their bytes are valid UTF-8. Two
    windows are decoded, with
    and without the new tokens, as decoders look at neighbours (spaces, merged bytes); text is held
    back while it ends in the middle of a UTF-8 sequence.
    """

    __slots__ = ("_read", "_start", "_tokenizer", "_tokens")

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._start = self._read = 0

    def push(self, token: int) -> str:
        """Text that became certain with this token, often empty."""
        self._tokens.append(token)
        known, now = self._windows()
        if len(now) <= len(known) or now.endswith(_REPLACEMENT) or not now.startswith(known):
            return ""
        self._start, self._read = self._read, len(self._tokens)
        return now[len(known) :]

    def finish(self) -> str:
        """What was held back; bytes that never became a character are replacement characters."""
        known, now = self._windows()
        self._start = self._read = len(self._tokens)
        return now[len(known) :]

    def _windows(self) -> tuple[str, str]:
        decode = self._tokenizer.decode
        return (
            decode(self._tokens[self._start : self._read]),
            decode(self._tokens[self._start :]),
        )


def _settings(path: Path) -> dict[str, object]:
    try:
        found = json.loads(read_named(path, LARGEST, pipes=False).decode("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path.name} cannot be read", f"{path}: {error}") from error
    return found if isinstance(found, dict) else {}
