"""Chat templates: messages to the text a chat model was trained on.

Templates come from the model directory, so they are data of strangers: Jinja's immutable sandbox
runs them, with the filters and functions that `transformers` gives them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from vcc.cache.errors import ModelError, UsageError
from vcc.cache.extras import install
from vcc.engine.runtime.tokenizer import Tokenizer

if TYPE_CHECKING:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

Message = Mapping[str, str]

_FAILURES = (
    *(TypeError, ValueError, ArithmeticError, LookupError, AttributeError),
    *(RecursionError, MemoryError),
)

_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


def render_chat(tokenizer: Tokenizer, messages: Sequence[Message]) -> str:
    """The prompt text of a conversation, ready for the assistant's turn.

    Args:
        tokenizer: whose directory holds the template.
        messages: "role" and "content" each.

    Raises:
        UsageError: Jinja is not installed.
        ModelError: the model has no chat template, or it fails.
    """
    template = chat_template(tokenizer)
    environment = _environment()
    from jinja2 import TemplateError

    try:
        text = environment.from_string(template).render(
            messages=list(messages), add_generation_prompt=True, **_special_tokens(tokenizer)
        )
        text.encode()  # no lone surrogates, which no tokenizer takes
        return text
    except (TemplateError, *_FAILURES) as error:
        raise ModelError(
            "the chat template failed",
            str(error),
            "leave --chat out to give the prompt as it is",
        ) from error


def encode_chat(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """Token ids of one user message in the model's chat form."""
    rendered = render_chat(tokenizer, [{"role": "user", "content": text}])
    # The template writes the special tokens itself.
    return tokenizer.encode(rendered, special_tokens=False)


def chat_template(tokenizer: Tokenizer) -> str:
    """The template text: `chat_template.jinja`, or the entry of `tokenizer_config.json`.

    Raises:
        ModelError: there is none.
    """
    path = tokenizer.directory / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ModelError(
                f"{path.name} cannot be read",
                f"{path}: {error}",
                "mend the file, or leave --chat out to give the prompt as it is",
            ) from error
    found = tokenizer.settings.get("chat_template")
    if isinstance(found, list):  # several named templates
        entries = [item for item in found if isinstance(item, dict)]
        named = [item.get("template") for item in entries if item.get("name") == "default"]
        found = named[-1] if named else None
    if not isinstance(found, str):
        raise ModelError(
            "the model has no chat template",
            f"neither {Path(path).name} nor tokenizer_config.json holds one",
            "leave --chat out to give the prompt as it is",
        )
    return found


def _special_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    found = {name: tokenizer.settings.get(name) for name in _SPECIAL}
    texts = {n: v.get("content") if isinstance(v, dict) else v for n, v in found.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _environment() -> ImmutableSandboxedEnvironment:
    try:
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise UsageError(
            "--chat needs Jinja", "jinja2 is not installed", install("jinja2")
        ) from error
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _generation_tag()],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _generation_tag() -> type[Any]:
    """`{% generation %}` marks the assistant's text for training; here it is transparent."""
    from jinja2.ext import Extension

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012 (the attribute is Jinja's)

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    return Generation


def _tojson(value: object, indent: int | None = None) -> str:
    # Jinja's own filter escapes HTML, which no model was trained on.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
