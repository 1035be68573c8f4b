"""Text comes out whole: never half a character, and joined it is the decoded whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from vcc.cache.errors import ModelError, UsageError
from vcc.engine.runtime.tokenizer import Detokenizer, Tokenizer, check_text, open_tokenizer


def _byte_level():
    """One token a byte, so that every character beyond ASCII is split."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {char: index for index, char in enumerate(alphabet)}
    model = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    model.add_special_tokens(["<end>"])
    return model


def _sentencepiece():
    """Words with a leading space, single bytes for the rest, as Llama 2 has them."""
    words = ["<unk>", "▁the", "▁cat", "s", "▁", "."] + [f"<0x{byte:02X}>" for byte in range(256)]
    vocab = {word: index for index, word in enumerate(words)}
    model = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    model.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    return model


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    return _saved(_byte_level(), tmp_path_factory.mktemp("bytes"))


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory):
    return _saved(_sentencepiece(), tmp_path_factory.mktemp("words"))


def _saved(model, place) -> Tokenizer:
    model.save(str(place / "tokenizer.json"))
    return open_tokenizer(place / "tokenizer.json")


def _streamed(tokenizer, ids):
    stream = Detokenizer(tokenizer)
    return [*(stream.push(token) for token in ids), stream.finish()]


@settings(deadline=None)
@given(text=st.text(max_size=30))
def test_any_text_comes_back_in_whole_characters(byte_level, text):
    ids = byte_level.encode(text)
    parts = _streamed(byte_level, ids)
    assert "".join(parts) == text
    assert all("\ufffd" not in part for part in parts) or "\ufffd" in text


@settings(deadline=None)
@given(ids=st.lists(st.integers(1, 133), max_size=20))
def test_joined_parts_are_the_text_decoded_at_once(sentencepiece, ids):
    whole = sentencepiece.decode(ids)
    # A byte that fits nowhere makes this decoder replace the good bytes before it as well.
    assume("\ufffd" not in whole)
    assert "".join(_streamed(sentencepiece, ids)) == whole


def test_a_character_appears_with_its_last_byte(byte_level):
    ids = byte_level.encode("né")
    assert _streamed(byte_level, ids) == ["n", "", "é", ""]


def test_bytes_that_never_become_a_character_are_replaced_at_the_end(byte_level):
    ids = byte_level.encode("aé")[:-1]
    assert _streamed(byte_level, ids) == ["a", "", "\ufffd"]


def test_special_tokens_are_not_text(byte_level):
    end = byte_level.model.token_to_id("<end>")
    assert _streamed(byte_level, [*byte_level.encode("hi"), end]) == ["h", "i", "", ""]


def test_a_stored_truncation_does_not_cut_prompts(tmp_path):
    model = _byte_level()
    model.enable_truncation(2)
    assert len(_saved(model, tmp_path).encode("four")) == 4


def test_a_missing_tokenizer_names_token_ids_as_the_way_out(tmp_path):
    for path in (None, tmp_path / "tokenizer.json"):
        with pytest.raises(ModelError, match="no tokenizer") as error:
            open_tokenizer(path)
        assert "--prompts" in error.value.hint


@pytest.mark.parametrize(("name", "text"), [("tokenizer.json", "{"), ("tokenizer.json", "[1]")])
def test_a_damaged_tokenizer_is_named(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(ModelError, match="cannot be read"):
        open_tokenizer(tmp_path / name)


def test_damaged_settings_are_named(tmp_path):
    _byte_level().save(str(tmp_path / "tokenizer.json"))
    for text in ("{", "[" * 100_000):
        (tmp_path / "tokenizer_config.json").write_text(text)
        with pytest.raises(ModelError, match="tokenizer_config"):
            open_tokenizer(tmp_path / "tokenizer.json")


def test_a_panic_of_the_library_is_a_fault_of_the_model() -> None:
    class PanicException(BaseException):
        pass

    class Broken:
        def encode(self, text: str, **_: object) -> object:
            raise PanicException("unknown special token")

    broken = Tokenizer(Broken(), {}, Path())  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="cannot encode") as caught:
        broken.encode("x")
    assert "unknown special token" in caught.value.why


def test_a_text_far_too_long_is_refused_by_its_beginning(byte_level):
    with pytest.raises(UsageError) as found:
        check_text(byte_level, "word " * 1_000_000, context=100)
    assert "its first 1600 of 5000000 characters are 1600 tokens" in found.value.why


def test_a_text_whose_tokens_are_long_is_encoded_whole(byte_level, monkeypatch):
    check_text(byte_level, "abc" * 533, context=100)  # as long as what is tried
    monkeypatch.setattr(Tokenizer, "encode", lambda *_, **__: (1,) * 200)
    check_text(byte_level, "abc" * 5000, context=100)  # few tokens: the rest may have none
