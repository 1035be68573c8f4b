"""vcc compile builds and stores; --dry-run explains and does neither."""

from __future__ import annotations

import json

import pytest

CONFIG = ("--target", "cpu", "--compilation-config")


def test_builds_and_stores(vcc, engine):
    done = vcc("compile", "demo", "--mode", "full")
    assert done.code == 0, done.err
    assert "stored: demo for tests" in done.out
    assert "1 unique piece, 1 compiled" in done.out
    assert "compile: piece 0 done (1 of 1)" in done.err
    assert vcc("run", "demo", "--prompt", "a", "--require-warm").code == 0


def test_json_has_artifact_reasons_and_counters(vcc, engine):
    found = vcc("compile", "demo", "--json").json
    assert len(found["artifact"]) == 64
    assert found["counters"]["compiles"] == 1
    assert {"field", "was", "now", "why"} == set(found["reasons"][0])


def test_options_reach_the_request(vcc, engine, tmp_path):
    vcc(
        "compile",
        "demo",
        "-O1",
        "--shapes",
        "4,1",
        "--jobs",
        "3",
        "--keep",
        str(tmp_path),
        "--weights",
        "none",
        "--max-num-seqs",
        "8",
        "--target",
        "cpu:x86-64-v2",
        "--compilation-config",
        '{"compile_sizes": [4]}',
    )
    (request,) = engine.builds
    assert request.compilation.level.name == "O1"
    assert request.compilation.capture_sizes == (4, 1)
    assert request.compilation.compile_sizes == (4,)
    assert (request.jobs, request.keep, request.weights) == (3, tmp_path, "none")
    assert request.model.max_num_seqs == 8
    assert str(request.target) == "cpu:x86-64-v2"


def test_an_empty_folder_to_keep_is_not_the_working_directory(vcc, engine):
    done = vcc("compile", "demo", "--keep", "")
    assert (done.code, engine.builds) == (2, [])
    assert "--keep" in done.err
    assert "it is empty" in done.err


@pytest.mark.parametrize("name", ["--max-num-seqs", "--max-num-batched-tokens", "--max-model-len"])
def test_a_limit_that_no_index_can_hold_is_refused(vcc, name):
    done = vcc("compile", "demo", "--dry-run", name, "9" * 25)
    assert done.code == 2
    assert "is too large" in done.err
    assert "use at most 2147483647" in done.err


def test_flags_go_before_the_json(vcc, engine):
    vcc("compile", "demo", "--mode", "full", "--compilation-config", '{"cuda_graph_mode": "none"}')
    assert engine.builds[0].compilation.cuda_graph_mode.value == "full"


def test_a_build_that_cannot_be_stored_is_a_storage_error(vcc, engine, own_store):
    own_store.write_text("a file where the store should be")
    done = vcc("compile", "demo")
    assert done.code == 5
    assert "built but not stored" in done.err
    assert "--cache-dir" in done.err


def test_dry_run_prints_reasons_and_builds_nothing(vcc, engine, own_store):
    done = vcc("compile", "demo", "--dry-run", "-O2")
    assert done.code == 0
    assert "level O2" in done.out
    assert "miss: the store is empty" in done.out
    assert engine.builds == []
    assert not own_store.exists()
    vcc("compile", "demo")
    found = vcc("compile", "demo", "--dry-run", "--json").json
    assert len(found["hit"]) == 64
    assert found["reasons"]


REFUSED = {
    "a mode without stored code": (2, ("--compile", "stock")),
    "a level without code": (3, ("--target", "cpu:x86-64-v2")),
    "an unknown GPU": (2, ("--target", "sm_70")),
    "a splitting op of ours": (2, (*CONFIG, '{"splitting_ops": ["vcc::paged_atention"]}')),
    "a splitting op of torch's": (2, (*CONFIG, '{"splitting_ops": ["aten::gelo"]}')),
    "a splitting op of nobody's": (2, (*CONFIG, '{"splitting_ops": ["mine::op"]}')),
    "an option of Inductor": (2, (*CONFIG, '{"inductor_config": {"max_autotun": true}}')),
    "its kind": (2, (*CONFIG, '{"inductor_config": {"max_autotune": 1}}')),
    "a pass": (2, (*CONFIG, '{"user_passes": ["nowhere:PASS"]}')),
    "a back end": (2, (*CONFIG, '{"custom_ops": ["+rms_norm:hip"]}')),
}


@pytest.mark.parametrize(("code", "words"), REFUSED.values(), ids=REFUSED)
def test_dry_run_refuses_what_a_build_refuses_before_its_trace(vcc, code, words):
    """With the same words, but for the hint of an operator, which a build takes from the graph."""
    dry = vcc("compile", "demo", "--dry-run", "--json", *words)
    real = vcc("compile", "demo", "--json", *words)
    assert (dry.code, real.code) == (code, code), (dry.out, real.out)
    told = [{**done.json["error"], "hint": ""} for done in (dry, real)]
    assert told[0] == told[1]


def test_dry_run_refuses_a_recording_where_there_is_no_gpu(spawn, monkeypatch, tmp_path):
    """In processes of their own: this one may have opened a driver."""
    monkeypatch.setenv("VCC_LIBCUDA", str(tmp_path / "libcuda.so.1"))
    words = ("compile", "demo", "--target", "sm_90", "--compile", "none", "--json")
    found = []
    for more in ((), ("--dry-run",)):
        process = spawn(*words, *more)
        out, err = process.communicate()
        assert process.returncode == 3, err
        found.append(json.loads(out)["error"])
    assert found[0] == found[1]
    assert found[0]["what"] == "graphs can only be recorded on a GPU"


def test_a_splitting_op_that_is_misspelt_has_a_hint(vcc):
    for name, hint in (("vcc.kv_writ", "vcc::kv_write"), ("aten::gelo", "aten::gelu")):
        config = f'{{"splitting_ops": ["{name}"]}}'
        done = vcc("compile", "demo", "--dry-run", "--compilation-config", config)
        assert done.code == 2
        assert f"did you mean {hint}" in done.err


def test_dry_run_answers_for_each_part_and_estimates(vcc, engine):
    done = vcc("compile", "demo", "--dry-run")
    rows = {line.split()[0]: line for line in done.out.splitlines() if " miss " in line}
    assert rows.keys() == {"request", "code", "plan", "tier"}
    assert "to do: compile" in done.out
    assert "estimate: no history" in done.out
    vcc("compile", "demo")
    found = vcc("compile", "demo", "--dry-run", "--json").json
    answers = {part["name"]: part["hit"] for part in found["parts"]}
    assert answers == {"request": True, "code key": False, "plan key": False, "tier local": True}
    assert found["work"] == "all", "the fake engine's key is none of ours"


def test_fail_on_miss_is_exit_code_1_and_still_prints(vcc, engine, own_store):
    done = vcc("compile", "demo", "--dry-run", "--fail-on-miss")
    assert done.code == 1
    assert "miss: the store is empty" in done.out
    assert vcc("compile", "demo", "--dry-run", "--fail-on-miss", "--json").json["hit"] is None
    assert not own_store.exists()


def test_fail_on_miss_passes_when_all_is_there(vcc, own_store):
    from support.key_artifacts import asked, publish

    from vcc.cache.store import Store

    publish(Store.open(own_store), asked())
    done = vcc("compile", "demo", "--target", "cpu", "--dry-run", "--fail-on-miss")
    assert done.code == 0, done.out
    assert "to do: nothing: the artifact is there" in done.out


def test_fail_on_miss_goes_with_a_dry_run(vcc):
    done = vcc("compile", "demo", "--fail-on-miss")
    assert done.code == 2
    assert "--dry-run" in done.err
