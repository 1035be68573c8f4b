"""Chat templates run in a sandbox and give what `transformers` gives."""

from __future__ import annotations

import builtins
import json

import pytest
import tokenizers
from tokenizers import models

from vcc.cache.errors import ModelError, UsageError
from vcc.engine.runtime.chat import render_chat
from vcc.engine.runtime.tokenizer import open_tokenizer

TEMPLATE = """{{ bos_token }}{% for m in messages %}
<|{{ m['role'] }}|>
{%- generation %}
{{ m['content'] | trim }}{% endgeneration %}
{% if loop.index > 5 %}{% break %}{% endif %}
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""

USER = [{"role": "user", "content": " hé <b> "}]


def _tokenizer(place, settings):
    tokenizers.Tokenizer(models.BPE(vocab={"a": 0}, merges=[])).save(str(place / "tokenizer.json"))
    (place / "tokenizer_config.json").write_text(json.dumps(settings))
    return open_tokenizer(place / "tokenizer.json")


def test_equals_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    settings = {"chat_template": TEMPLATE, "bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    peer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(models.BPE(vocab={"a": 0}, merges=[])),
        bos_token="<s>",
        chat_template=TEMPLATE,
    )
    expected = peer.apply_chat_template(USER, tokenize=False, add_generation_prompt=True)
    assert render_chat(_tokenizer(tmp_path, settings), USER) == expected
    assert "<s>" in expected


def test_json_is_not_escaped_for_html(tmp_path):
    text = render_chat(_tokenizer(tmp_path, {"chat_template": "{{ messages | tojson }}"}), USER)
    assert json.loads(text) == USER
    assert "<b>" in text
    assert "é" in text


def test_the_file_comes_before_the_settings(tmp_path):
    tokenizer = _tokenizer(tmp_path, {"chat_template": "settings"})
    (tmp_path / "chat_template.jinja").write_text("file")
    assert render_chat(tokenizer, USER) == "file"


def test_the_default_of_named_templates_is_taken(tmp_path):
    named = [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]
    assert render_chat(_tokenizer(tmp_path, {"chat_template": named}), USER) == "d"


def test_no_template_is_an_error_with_a_way_out(tmp_path):
    with pytest.raises(ModelError, match="no chat template") as error:
        render_chat(_tokenizer(tmp_path, {}), USER)
    assert "--chat" in error.value.hint


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% for i in range(1000000) %}x{% endfor %}",
        "{{ 1 / 0 }}",
        "{% if %}",
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].nothing.more }}",
        "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
        "{{" + "(" * 3000 + "1" + ")" * 3000 + "}}",
        "\ud800",
    ],
)
def test_a_template_that_breaks_out_or_fails_is_an_error(tmp_path, template):
    with pytest.raises(ModelError, match="chat template failed"):
        render_chat(_tokenizer(tmp_path, {"chat_template": template}), USER)


def test_a_damaged_template_file_is_named(tmp_path):
    tokenizer = _tokenizer(tmp_path, {"chat_template": [{"name": [], "template": "x"}]})
    with pytest.raises(ModelError, match="no chat template"):
        render_chat(tokenizer, USER)
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ModelError, match=r"chat_template\.jinja cannot be read"):
        render_chat(tokenizer, USER)


def test_without_jinja_the_extra_is_named(tmp_path, monkeypatch):
    real = builtins.__import__

    def missing(name, *rest, **more):
        if name.startswith("jinja2"):
            raise ImportError(name)
        return real(name, *rest, **more)

    tokenizer = _tokenizer(tmp_path, {"chat_template": "x"})
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UsageError) as error:
        render_chat(tokenizer, USER)
    assert error.value.hint == "pip install 'jinja2>=3.1'"
