"""The certificate of a boot: whole however the boot ends, and true about hits and misses."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from support.cli_reference import PAGE, differences, shapes

from vcc.cache.errors import CompileError, Exit
from vcc.cache.store import Store

RUN = ("run", "demo", "--prompt", "a", "--max-new-tokens", "2")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "boot.json"


@pytest.fixture
def booted(vcc, engine, file):
    """Run and read the certificate."""

    def run(*words: str, code: int = 0):
        done = vcc(*RUN, "--report", str(file), *words)
        assert done.code == code, done.err
        return json.loads(file.read_text())

    return run


def test_a_cold_boot_lists_its_misses_and_what_it_built(booted):
    found = booted()
    assert (found["report"], found["version"], found["state"]) == ("vcc boot", 1, "done")
    assert found["warm"] is False
    assert [one["outcome"] for one in found["misses"]] == ["nothing"]
    assert "the store is empty" in found["misses"][0]["why"]
    assert found["built"] == [{"stage": "compile", "item": "piece 0", "state": "done"}]
    assert found["stages"] == [{"stage": "compile", "seconds": 0.25}]
    assert found["hits"] == []


def test_a_warm_boot_lists_tier_trust_and_bytes(booted, own_store):
    first = booted()
    found = booted("--require-warm")
    assert found["warm"] is True
    (hit,) = found["hits"]
    assert hit["artifact"] == first["artifact"] == found["artifact"]
    assert hit["tier"] == "local"
    assert hit["trust"] in ("written by this account", "written by root")
    (entry,) = Store.open(own_store).entries()
    manifest = own_store / "v1/cas/sha256" / entry.artifact[:2] / entry.artifact
    assert found["verified"]["bytes"] == entry.size + manifest.stat().st_size
    assert {one["kind"]: one["bytes"] for one in found["verified"]["blobs"]} == {
        "program": 2,
        "library": 4,
    }
    assert (found["misses"], found["built"], found["error"]) == ([], [], None)
    assert sum(found["phases"].values()) == pytest.approx(found["seconds"], abs=0.001)
    assert found["request"]["fields"]["model.dtype"] == "bf16"
    page = shapes(PAGE.read_text())["boot report"]
    assert differences(page, found) == []


def test_a_lower_tier_is_named(vcc, booted, own_store, monkeypatch, tmp_path):
    booted()
    monkeypatch.setenv("VCC_LOWER_DIRS", str(own_store))
    monkeypatch.setenv("VCC_CACHE_DIR", str(tmp_path / "upper"))
    assert booted("--require-warm")["hits"][0]["tier"] == "lower 1"


def test_require_warm_fails_with_the_explanation(vcc, booted, file, engine):
    booted()
    done = vcc(*RUN, "--require-warm", "--dtype", "fp32", "--report", str(file))
    assert done.code == Exit.NEGATIVE
    assert "number format" in done.err
    assert "hint: build it: vcc compile demo --dtype fp32" in done.err
    found = json.loads(file.read_text())
    assert (found["state"], found["warm"]) == ("failed", False)
    assert found["error"]["id"] == "MISSING_ARTIFACT"
    (near,) = found["explanation"]["nearest"]
    assert [one["label"] for one in near["causes"]] == ["model.dtype"]
    assert len(engine.builds) == 1


def test_the_explanation_is_in_the_json_of_the_error(vcc, engine):
    done = vcc(*RUN, "--require-warm", "--json")
    assert done.code == Exit.NEGATIVE
    assert done.json["error"]["explanation"]["why"] == "the store is empty"


def test_a_damaged_artifact_is_a_miss_with_the_reason(booted, own_store):
    first = booted()
    for blob in (own_store / "v1/cas/sha256").glob("*/*"):
        if blob.name != first["artifact"]:
            blob.chmod(0o600)
            blob.write_bytes(b"x" * blob.stat().st_size)
    found = booted()
    assert [one["outcome"] for one in found["misses"]] == ["damaged", "nothing"]
    assert found["misses"][0]["artifact"] == first["artifact"]
    assert found["warm"] is False


def test_an_untrusted_artifact_is_a_miss_with_the_reason(booted):
    booted()
    found = booted("--policy", "signed", "--require-warm", code=Exit.INTEGRITY)
    assert found["misses"][0]["outcome"] == "untrusted"
    assert "not signed" in found["misses"][0]["why"]


@pytest.mark.parametrize("when", ["before a session", "while building", "while booting"])
def test_a_boot_that_fails_leaves_its_error(vcc, engine, file, when):
    words = ("--dtype", "bf61") if when == "before a session" else ()
    engine.build_error = CompileError("no", "because") if when == "while building" else None
    engine.boot_error = CompileError("no", "because") if when == "while booting" else None
    done = vcc(*RUN, "--report", str(file), *words)
    found = json.loads(file.read_text())
    assert (found["state"], found["warm"]) == ("failed", False)
    assert found["error"]["exit"] == done.code != 0
    assert found["artifact"] is None
    assert found["seconds"] > 0


def test_an_unexpected_error_and_ctrl_c_are_reported_too(vcc, engine, file):
    for error, code in ((ValueError("a bug"), Exit.INTERNAL), (KeyboardInterrupt(), 130)):
        engine.build_error = error
        assert vcc(*RUN, "--report", str(file)).code == code
        assert json.loads(file.read_text())["error"]["exit"] == code


def test_a_process_that_is_killed_leaves_no_report_of_an_earlier_boot(spawn, file):
    file.write_text('{"warm": true}')
    code = (
        "import sys, time\n"
        "from vcc.cli import boot_report, run\n"
        "run.build_request = lambda asked: time.sleep(60)\n"
        "from vcc.cli.main import main\n"
        "main(sys.argv[1:])\n"
    )
    process = spawn(*RUN, "--report", str(file), code=code)
    deadline = time.monotonic() + 60
    while '"booting"' not in file.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    assert json.loads(file.read_text()) == {
        "report": "vcc boot",
        "version": 1,
        "state": "booting",
        "warm": False,
    }
    assert os.listdir(file.parent) == [file.name]


def test_a_pipe_gets_one_report_and_a_link_stays_one(vcc, engine, booted, tmp_path, file):
    link = tmp_path / "link.json"
    link.symlink_to(file)
    assert vcc(*RUN, "--report", str(link)).code == 0
    assert link.is_symlink()
    assert json.loads(file.read_text())["state"] == "done"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert vcc(*RUN, "--report", str(tmp_path / "pipe")).code == 0
        assert json.loads(os.read(reader, 1 << 20))["state"] == "done"
    finally:
        os.close(reader)
