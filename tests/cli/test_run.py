"""vcc run answers every prompt, warm from the store or after a build, and reports what it did."""

from __future__ import annotations

import json

import pytest
from support.fake_runner import BrokenRunner

from vcc.cache.errors import CompileError, IntegrityError


def _json(vcc, *words):
    done = vcc("run", "demo", "--json", "--max-new-tokens", "5", *words)
    assert done.code == 0, done.out
    return done.json


def test_a_miss_builds_says_why_and_the_next_run_is_warm(vcc, engine):
    cold = vcc("run", "demo", "--prompt", "Once", "--max-new-tokens", "3")
    assert cold.code == 0
    assert "so it is built now: the store is empty" in cold.err
    warm = vcc("run", "demo", "--prompt", "Once", "--max-new-tokens", "3", "--require-warm")
    assert warm.code == 0
    assert len(engine.builds) == 1
    assert warm.out == cold.out
    assert "hits 1" in warm.err
    assert "misses 1" in cold.err


def test_the_report_names_what_was_booted(vcc, engine):
    (id,) = {_json(vcc, "--prompt", "a")["artifact"] for _ in range(2)}
    text = vcc("run", "demo", "--prompt", "Once", "--max-new-tokens", "3").err
    assert f"artifact  {id[:12]}  demo for tests  mode none  graphs 0\n" in text


def test_the_json_has_answers_phases_and_counters(vcc, engine):
    _json(vcc, "--prompt", "a")
    found = _json(vcc, "--prompt", "Once upon", "--prompt", "The end", "--ignore-eos")
    assert [one["prompt"] for one in found["prompts"]] == ["Once upon", "The end"]
    for one in found["prompts"]:
        assert len(one["token_ids"]) <= 5
        assert one["finish_reason"] in ("stop", "length")
        assert isinstance(one["text"], str)
    assert sum(found["phases"].values()) == pytest.approx(found["seconds"], abs=1e-3)
    assert {"import", "resolve", "verify", "first_token", "generate"} <= set(found["phases"])
    counters = found["counters"]
    assert (counters["compiles"], counters["traces"]) == (0, 0)
    assert (counters["hits"], counters["misses"]) == (1, 0)
    assert counters["fallbacks"] == {"not full: too many tokens": 5}
    assert found["artifact"]


def test_a_batch_gives_each_prompt_the_tokens_it_gets_alone(vcc, engine):
    texts = ["Once upon a time", "x", "The old man and the sea " * 4]
    together = _json(vcc, *[word for text in texts for word in ("--prompt", text)])
    alone = [_json(vcc, "--prompt", text)["prompts"][0] for text in texts]
    assert together["prompts"] == alone


def test_sampling_is_decided_by_the_seed(vcc, engine):
    def tokens(*words):
        found = _json(vcc, "--prompt", "a", "--temperature", "2", "--ignore-eos", *words)
        return found["prompts"][0]["token_ids"]

    assert tokens("--seed", "1") == tokens("--seed", "1") != tokens("--seed", "2")
    assert (
        tokens("--top-k", "1")
        == _json(vcc, "--prompt", "a", "--ignore-eos")["prompts"][0]["token_ids"]
    )


def test_logits_that_are_not_finite_are_told_beside_the_answer(vcc, engine, tmp_path):
    engine.runner = BrokenRunner
    (tmp_path / "ids.json").write_text("[[5, 7], [5, 6]]")
    words = ("--prompts", str(tmp_path / "ids.json"), "--ignore-eos")
    found = _json(vcc, *words)
    assert [one["not_finite"] for one in found["prompts"]] == [5, 0]
    (note,) = [one for one in found["notes"] if "infinity" in one]
    assert note.startswith("prompt 0: logits of 5 of 5 tokens have NaN or infinity")
    told = vcc("run", "demo", "--max-new-tokens", "5", *words)
    assert told.code == 0
    assert note in told.err
    assert note not in told.out


def test_several_answers_are_printed_in_the_order_of_their_prompts(vcc, engine, tmp_path):
    (tmp_path / "list").write_text("first\n\nsecond\n")
    done = vcc("run", "demo", "--prompts", str(tmp_path / "list"), "--max-new-tokens", "2")
    assert [line for line in done.out.splitlines() if line.startswith("[")] == [
        "[0] first",
        "[1] second",
    ]


def test_token_ids_are_prompts_too(vcc, engine, tmp_path):
    (tmp_path / "ids.json").write_text('[[5, 6], "text"]')
    found = _json(vcc, "--prompts", str(tmp_path / "ids.json"))
    assert found["prompts"][0]["prompt"] is None
    (tmp_path / "wrong.json").write_text("[[5, 2048]]")
    done = vcc("run", "demo", "--prompts", str(tmp_path / "wrong.json"))
    assert done.code == 2
    assert "token id 2048" in done.err
    assert "hint: give ids that the model's vocabulary has" in done.err


def test_token_ids_are_answered_where_the_tokenizer_is_damaged(vcc, engine, tmp_path, monkeypatch):
    from vcc.engine import answer

    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"')
    opened = answer.open_tokenizer
    monkeypatch.setattr(answer, "open_tokenizer", lambda path: opened(tmp_path / "tokenizer.json"))
    (tmp_path / "ids.json").write_text("[[5, 6]]")
    found = _json(vcc, "--prompts", str(tmp_path / "ids.json"), "--ignore-eos")
    assert found["prompts"][0]["text"] is None
    assert len(found["prompts"][0]["token_ids"]) == 5
    (note,) = [one for one in found["notes"] if "without text" in one]
    assert note.startswith("answers are token ids, without text: the tokenizer cannot be read: ")
    refused = vcc("run", "demo", "--prompt", "a")
    assert refused.code == 2
    assert "hint: give token ids instead" in refused.err


def test_a_text_whose_tokenizer_is_of_another_model_is_told_so(vcc, engine, monkeypatch):
    from vcc.engine import answer

    monkeypatch.setattr(answer, "_ids", lambda *given, **chat: (5, 2048))
    done = vcc("run", "demo", "--prompt", "a")
    assert done.code == 2
    assert "hint: use the tokenizer that belongs to the model" in done.err


def test_chat_uses_the_models_template(vcc, engine):
    from vcc.engine.models.source import open_source
    from vcc.engine.runtime.chat import encode_chat
    from vcc.engine.runtime.tokenizer import open_tokenizer

    _json(vcc, "--prompt", "a", "--chat", "--max-new-tokens", "1")
    tokenizer = open_tokenizer(open_source("demo", weights="none").tokenizer)
    assert engine.boots[-1][1] == (len(encode_chat(tokenizer, "a")) + 1,)


def test_the_report_file_begins_with_what_json_prints(vcc, engine, tmp_path):
    found = _json(vcc, "--prompt", "a", "--report", str(tmp_path / "report.json"))
    written = json.loads((tmp_path / "report.json").read_text())
    assert {name: written[name] for name in found} == found
    done = vcc("run", "demo", "--prompt", "a", "--report", "/no/such/place/report.json")
    assert done.code == 5
    assert "cannot write the report" in done.err


def test_an_unwritable_store_is_a_warning(vcc, engine, own_store):
    own_store.write_text("a file where the store should be")
    done = vcc("run", "demo", "--prompt", "a", "--max-new-tokens", "2")
    assert done.code == 0, done.err
    assert "note: the artifact was not stored" in done.err
    found = vcc("run", "demo", "--prompt", "a", "--max-new-tokens", "2", "--json").json
    assert found["artifact"] is None
    assert any("not stored" in note for note in found["notes"])


def test_a_damaged_blob_is_named_and_rebuilt(vcc, engine, own_store):
    first = _json(vcc, "--prompt", "a")
    _damage(own_store)
    done = vcc("run", "demo", "--prompt", "a", "--max-new-tokens", "5", "--json")
    assert done.code == 0
    assert "is damaged" in done.err
    assert done.json["prompts"] == first["prompts"]
    assert len(engine.builds) == 2
    again = _json(vcc, "--prompt", "a", "--require-warm")
    assert again["prompts"] == first["prompts"]


def test_a_damaged_blob_is_refused_when_nothing_may_be_built(vcc, engine, own_store):
    _json(vcc, "--prompt", "a")
    _damage(own_store)
    done = vcc("run", "demo", "--prompt", "a", "--require-warm")
    assert done.code == 7
    assert done.out == ""


def _damage(store):
    (blob,) = (
        path
        for path in (store / "v1" / "cas").rglob("*")
        if path.is_file() and path.read_bytes() == b"code"
    )
    blob.chmod(0o600)
    blob.write_bytes(b"c0de")


def test_golden_and_lengths_reach_the_boot(vcc, engine):
    _json(vcc, "--prompt", "a", "--golden", "all")
    golden, lengths = engine.boots[-1]
    assert golden == "all"
    assert lengths[0] >= 6


def test_fields_named_at_run_must_match_and_others_may_differ(vcc, engine):
    vcc("compile", "demo", "--mode", "full", "--shapes", "1,2")
    assert _json(vcc, "--prompt", "a", "--require-warm", "--mode", "full")
    done = vcc("run", "demo", "--prompt", "a", "--require-warm", "--mode", "piecewise")
    assert done.code == 1
    assert "config.cuda_graph_mode: found 'full', wanted 'piecewise'" in done.err
    done = vcc("run", "demo", "--prompt", "a", "--require-warm", "--dtype", "fp32")
    assert done.code == 1
    assert "model.dtype" in done.err


@pytest.mark.parametrize("error", [CompileError("no", "because"), IntegrityError("golden differs")])
def test_what_a_boot_or_build_cannot_do_ends_the_run(vcc, engine, error):
    engine.boot_error = error
    done = vcc("run", "demo", "--prompt", "a")
    assert done.code == error.exit
    assert done.out == ""


def test_a_pipe_is_a_prompt(vcc, engine, monkeypatch):
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("Once upon\na time\n"))
    assert _json(vcc)["prompts"][0]["prompt"] == "Once upon\na time"


def test_a_chat_without_a_prompt_talks_on_the_terminal(vcc, engine, monkeypatch):
    lines = iter(["Hello", "", "And then?"])

    def typed(prompt):
        line = next(lines, None)
        if line is None:
            raise EOFError
        return line

    monkeypatch.setattr("builtins.input", typed)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    done = vcc("run", "demo", "--chat", "--max-new-tokens", "4", "--ignore-eos")
    assert done.code == 0, done.err
    assert len(done.out.strip().splitlines()) >= 2
    assert "tokens/s" in done.err
    assert len(engine.boots) == 1


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "plain_model.py").write_text("def make():\n    raise AssertionError\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "plain_model:make"


def test_a_plain_module_answers_no_prompts(vcc, engine, module):
    done = vcc("run", module, "--shape", "x=2x3", "--prompt", "a")
    assert done.code == 2
    assert "answers no prompts" in done.err


def test_a_plain_module_runs_its_forward_once(vcc, engine, module):
    words = ("run", module, "--shape", "x=1-4x3", "--shape", "ids=5:int64")
    plain = vcc(*words)
    assert plain.code == 0, plain.err
    head, first, second = plain.out.splitlines()
    assert head.split() == ["output", "dtype", "shape", "sha256"]
    assert first.split()[:3] == ["output_0", "float32", "4x3"]
    assert second.split()[:3] == ["output_1", "int64", "5"]
    found = vcc(*words, "--json", "--require-warm").json
    assert [one["sha256"][:16] for one in found["outputs"]] == [first.split()[3], second.split()[3]]
    assert found["counters"]["hits"] == 1
    assert sum(found["phases"].values()) == pytest.approx(found["seconds"], abs=1e-3)
