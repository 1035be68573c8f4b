"""run --trace-batches writes a line a step; inspect batches sums them up."""

from __future__ import annotations

import json

import pytest

from vcc.cache.errors import Exit


def lines(file) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_run_writes_a_line_for_every_step(vcc, engine, tmp_path):
    file = tmp_path / "trace"
    words = ("--prompt", "a b c", "--prompt", "d", "--max-new-tokens", "3", "--ignore-eos")
    assert vcc("run", "demo", *words, "--trace-batches", str(file)).code == 0
    found = lines(file)
    assert [one["step"] for one in found] == list(range(len(found)))
    assert [one["seqs"] for one in found[1:]] == [2, 2]
    assert found[0]["raw_tokens"] > 2
    assert {"raw_tokens", "padded_tokens", "mode", "reason"} <= set(found[0])


def test_a_place_that_cannot_be_written_is_refused_before_the_boot(vcc, engine, tmp_path):
    done = vcc("run", "demo", "--prompt", "a", "--trace-batches", str(tmp_path / "no" / "file"))
    assert done.code == Exit.STORAGE
    assert "cannot write the batch trace" in done.err
    assert (engine.builds, engine.boots) == ([], [])


@pytest.fixture
def traced(tmp_path):
    file = tmp_path / "trace"
    steps = [(40, 3, "none")] + [(n, n, "full") for n in (3, 3, 3, 2, 1)]
    text = "".join(
        json.dumps(
            {"raw_tokens": raw, "padded_tokens": raw + 1, "seqs": n, "mode": m, "reason": "why"}
        )
        + "\n"
        for raw, n, m in steps
    )
    file.write_text(text)
    return file


def test_batches_are_summed_up_with_sizes_for_them(vcc, traced):
    text = vcc("inspect", "batches", str(traced)).out
    assert "6 steps, 5 of them decode only" in text
    assert "for decode steps: --shapes 1,2,3 (0.0 % padding)" in text
    assert "for all steps: --shapes 1,2,3,40 " in text
    found = vcc("inspect", "batches", str(traced), "--json", "--graphs", "2").json
    assert (found["steps"], found["decode_steps"], found["raw_tokens"]) == (6, 5, 52)
    assert found["modes"] == {"full": 5, "none": 1}
    assert found["decode"] == {"sizes": [1, 3], "padding": pytest.approx(1 / 13, abs=1e-6)}
    assert found["all"]["sizes"] == [3, 40]


def test_a_trace_without_steps_says_so(vcc, tmp_path):
    file = tmp_path / "trace"
    file.write_text("")
    assert vcc("inspect", "batches", str(file)).out == "no steps\n"


def test_a_file_that_is_no_trace_is_refused(vcc, tmp_path):
    file = tmp_path / "trace"
    file.write_text("hello\n")
    done = vcc("inspect", "batches", str(file))
    assert done.code == Exit.USAGE
    assert "--trace-batches" in done.err
    assert vcc("inspect", "batches", str(tmp_path)).code == Exit.USAGE
