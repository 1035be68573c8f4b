"""vcc prewarm as a user meets it: builds in processes of their own, annotations, sign and push."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from support.cli_reference import PAGE, differences, shapes

from vcc.cache.errors import Exit
from vcc.cache.store import Store
from vcc.engine.prewarm.run import Prewarm, State

LIST = """\
[defaults]
compile = "none"

[[build]]
model = "demo"
dtype = ["fp32", "bf16"]
"""


@pytest.fixture(autouse=True)
def apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VCC_TRUST_DIR", str(tmp_path / "trust"))
    for name in ("VCC_SIGNING_KEY", "GITHUB_STEP_SUMMARY", "VCC_REMOTE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def listed(tmp_path):
    (tmp_path / "vcc.toml").write_text(LIST)
    return tmp_path / "vcc.toml"


def test_a_check_finds_what_a_prewarm_built(vcc, listed):
    before = vcc("prewarm", "--check")
    assert before.code == Exit.NEGATIVE
    assert "2 missing" in before.out
    built = vcc("prewarm", "--json")
    assert built.code == 0, built.err
    assert [one["state"] for one in built.json["builds"]] == ["built", "built"]
    after = vcc("prewarm", "--check", "--json")
    assert after.code == 0
    assert after.json["counts"]["present"] == 2
    assert differences(shapes(PAGE.read_text())["prewarm"], after.json) == []


def test_one_broken_build_stops_no_other(vcc, listed):
    listed.write_text(LIST.replace('"bf16"]', '"bf16"]\n[[build]]\nmodel = "./none"'))
    done = vcc("prewarm", "--github")
    assert done.code == Exit.PARTIAL
    assert "2 built, 1 failed" in done.out
    assert "::error file=vcc.toml,line=7,col=1::./none · " not in done.out
    assert "::error file=vcc.toml,line=7,col=1::./none failed: " in done.out


@pytest.mark.parametrize("present", [False, True])
def test_a_check_is_negative_where_something_is_missing_else_partial_where_one_fails(
    vcc, listed, monkeypatch, present
):
    listed.write_text(LIST.replace('"bf16"]', '"bf16"]\n[[build]]\nmodel = "./none"'))
    if present:
        monkeypatch.setattr(Prewarm, "_looked", _all_present(Prewarm._looked))
    done = vcc("prewarm", "--check", "--json")
    counts = done.json["counts"]
    assert (counts["missing"], counts["failed"]) == (0 if present else 2, 1)
    assert done.code == done.json["exit"] == (Exit.PARTIAL if present else Exit.NEGATIVE)


def _all_present(real):
    def looked(self, asked, refs):
        found = real(self, asked, refs)
        return replace(found, state=State.PRESENT) if found.state is State.MISSING else found

    return looked


def test_a_broken_file_builds_nothing_and_is_annotated(vcc, listed, own_store):
    listed.write_text(LIST + 'dtpye = "x,%"\n')
    done = vcc("prewarm", "--github", "--json")
    assert done.code == Exit.USAGE
    assert '::error file=vcc.toml,line=7,col=1::unknown field "dtpye"; did you' in done.err
    assert done.json["error"]["problems"] == [
        {"line": 7, "column": 1, "text": done.json["error"]["problems"][0]["text"]}
    ]
    assert not own_store.exists()


def test_annotations_escape_what_would_end_them(vcc, tmp_path):
    (tmp_path / "a,b.toml").write_text('[[build]]\nmodel = "demo"\n"100%" = 1\n')
    done = vcc("prewarm", "a,b.toml", "--github")
    assert '::error file=a%2Cb.toml,line=3,col=1::unknown field "100%25"' in done.out


def test_the_summary_of_a_job_is_a_table(vcc, listed, tmp_path, monkeypatch):
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    done = vcc("prewarm", "--check", "--github")
    assert done.out.count("::error ") == 2
    text = summary.read_text()
    assert text.startswith("before\n### vcc prewarm vcc.toml\n")
    assert "| demo · fp32 | missing | - |" in text


def test_a_summary_that_cannot_be_written_is_told(vcc, listed, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    done = vcc("prewarm", "--check", "--github")
    assert done.code == Exit.NEGATIVE
    assert "summary for GitHub cannot be written" in done.err


def test_shards_share_the_list(vcc, listed):
    parts = [vcc("prewarm", "--check", "--json", "--shard", f"{n}/2").json for n in (1, 2)]
    assert sum(len(part["builds"]) for part in parts) == 2
    assert sum(part["other_shards"] for part in parts) == 2


def test_artifacts_are_signed_then_pushed_with_their_signatures(vcc, listed, tmp_path):
    assert vcc("sign", "--new-key", "key", "--name", "main").code == 0
    remote = f"file://{tmp_path / 'remote'}"
    words = ("--sign", "key", "--builder", "ci", "--source-commit", "a" * 40, "--epoch", "3")
    done = vcc("prewarm", "--push", remote, *words, "--json")
    assert done.code == 0, done.err
    for one in done.json["builds"]:
        signed, pushed = one["notes"]
        assert signed.startswith("signed by key ")
        assert pushed == f"pushed to {remote}"
        assert list((tmp_path / "remote/v1/signatures" / one["artifact"]).iterdir())
    again = vcc("prewarm", "--push", remote, "--json").json
    assert [one["notes"] for one in again["builds"]] == [[f"there already: {remote}"]] * 2
    fresh = vcc("prewarm", "--check", "--cache-dir", "other", "--remote", remote, "--json")
    assert fresh.code == 0, fresh.err
    assert len(list(Store.open(tmp_path / "other").entries())) == 2


def test_what_was_pulled_is_not_signed_and_no_error(vcc, listed, tmp_path):
    assert vcc("sign", "--new-key", "key", "--name", "main").code == 0
    remote = f"file://{tmp_path / 'remote'}"
    assert vcc("prewarm", "--push", remote, "--sign", "key").code == 0
    words = ("--cache-dir", "other", "--remote", remote, "--sign", "key", "--json")
    done = vcc("prewarm", *words)
    assert done.code == 0
    assert all(one["state"] == "present" for one in done.json["builds"])
    assert all("it was pulled from" in one["notes"][0] for one in done.json["builds"])


def test_a_remote_that_fails_is_told_for_each_and_nothing_built_is_lost(vcc, listed, tmp_path):
    (tmp_path / "remote").write_text("a file")
    done = vcc("prewarm", "--push", f"file://{tmp_path / 'remote'}", "--json")
    assert done.code in (Exit.REMOTE, Exit.STORAGE)
    assert [one["state"] for one in done.json["builds"]] == ["built", "built"]
    assert all(one["error"] for one in done.json["builds"])
    assert vcc("prewarm", "--check").code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("--check", "--push", "file:///x"),
        ("--check", "--sign", "key"),
        ("--check", "--budget", "1m"),
        ("--builder", "ci"),
        ("--budget", "soon"),
        ("--shard", "3/2"),
        ("--sign", "none"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_built(
    vcc, listed, own_store, words
):
    assert vcc("prewarm", *words).code in (Exit.USAGE, Exit.STORAGE)
    assert not own_store.exists()


def test_a_budget_that_is_used_up_leaves_builds_and_says_so(vcc, listed):
    done = vcc("prewarm", "--budget", "0s")
    assert done.code == Exit.PARTIAL
    assert "2 left" in done.out
    assert "the budget is used up" in done.out
    assert vcc("prewarm", "--budget", "30m").code == 0


def test_fifty_present_builds_are_checked_in_two_seconds_without_torch(vcc, tmp_path, engine):
    """The fake engine stores what a check takes, so that 50 processes need not start."""
    from support.prewarmed import publish_all

    builds = "".join(
        f'[[build]]\nmodel = "demo"\ndtype = ["fp32", "bf16"]\nmax_num_seqs = {n}\n'
        for n in range(1, 26)
    )
    (tmp_path / "vcc.toml").write_text(builds)
    assert publish_all(tmp_path / "vcc.toml", Store.open()) == 50
    code = (
        "import json, sys, time\n"
        "from vcc.cli import main\n"
        "code = main.run(['prewarm', '--check', '--json'])\n"
        "print(time.process_time(), 'torch' in sys.modules, code, file=sys.stderr)\n"
    )
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    wall = time.monotonic() - begun
    spent, torch, exit_code = done.stderr.split()[-3:]
    assert json.loads(done.stdout)["counts"]["present"] == 50
    assert (torch, exit_code) == ("False", "0")
    # Other processes may have the cores: what counts is the time it computed.
    assert float(spent) < 2.0, f"{spent} s of {wall:.2f}"
