"""vcc passes: the list, one pass, the check that it keeps results; what compile says of them."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from vcc.cli.pass_report import pass_lines, said
from vcc.engine.config.levels import PASS_RULES

OWN = "support.own_passes"
MODEL = (f"{OWN}:make", "--shape", "x=1-64x8")


def test_ls_lists_every_pass_in_order(vcc):
    done = vcc("passes", "ls")
    assert done.code == 0, done.err
    rows = done.out.splitlines()[1:]
    found = [row.split()[0] for row in rows]
    assert sorted(found) == sorted(rule.name for rule in PASS_RULES)
    assert [one["name"] for one in vcc("passes", "ls", "--json").json["passes"]] == found


def test_show_says_what_a_pass_is(vcc):
    done = vcc("passes", "show", "eliminate_noops")
    assert done.code == 0, done.err
    assert "engine/passes/noops.py" in done.out
    assert "No-op elimination" in done.out
    found = vcc("passes", "show", f"{OWN}:SQUARE", "--json").json
    assert (found["name"], found["on"], found["where"]) == ("square", "when named", "everywhere")
    assert found["source"].endswith("support/own_passes.py")


def test_show_offers_the_nearest_name(vcc):
    done = vcc("passes", "show", "eliminate_noop")
    assert done.code == 2
    assert 'did you mean "eliminate_noops"?' in done.err


def test_check_compares_results_on_the_demo(vcc):
    done = vcc("passes", "check", "eliminate_noops", "demo")
    assert done.code == 0, done.err
    assert re.search(r"eliminate_noops on demo: fired \d+ times", done.out)
    assert "results on 4 step sizes: bit for bit equal" in done.out


REJECTED = {
    "NEVER": "it never matches in",
    "WRONG": "results differ: ",
}


@pytest.mark.parametrize("name", REJECTED)
def test_check_exits_1_when_a_pass_does_not_do_its_work(vcc, name):
    done = vcc("passes", "check", f"{OWN}:{name}", *MODEL)
    assert done.code == 1
    assert REJECTED[name] in done.out
    found = vcc("passes", "check", f"{OWN}:{name}", *MODEL, "--json").json
    assert found["verdict"].startswith(REJECTED[name])


def test_check_keeps_graphs_that_run(vcc, tmp_path):
    """Each dump is a program; the graph before and after the pass give the same."""
    done = vcc("passes", "check", f"{OWN}:SQUARE", *MODEL, "--keep", str(tmp_path / "kept"))
    assert done.code == 0, done.err
    files = sorted((tmp_path / "kept").iterdir())
    assert files[0].name == "00-traced.py"
    assert files[1].name == "01-eliminate_noops.py"
    assert files[-1].name == f"{len(files) - 1:02}-square.py"
    said = run_files(*files)
    assert len(said) == len(files)
    assert len(set(said)) == 1
    assert said[0].startswith("0 torch.float32 [4, 8] sum ")


def run_files(*files) -> list[str]:
    """What each of these programs prints."""
    code = "import runpy, sys; [runpy.run_path(f, run_name='__main__') for f in sys.argv[1:]]"
    command = [sys.executable, "-c", code, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_pass_that_raises_is_named_with_a_dump_that_reproduces_it(vcc, tmp_path):
    done = vcc("passes", "check", f"{OWN}:RAISES", *MODEL, "--keep", str(tmp_path))
    assert done.code == 8
    left = next(tmp_path.glob("*-raises-failed.txt"))
    assert f"pass raises failed; its graph is in {left}" in done.err
    assert "ZeroDivisionError: by hand" in done.err
    given = next(tmp_path.glob("*-before-raises.py"))
    assert "sum" in run_files(given)[0]


REPORTS = {
    "fired 1 time": {"matches": 1},
    "fired 2 times · saves 2.0 kB a step · saves 3 launches a step": {
        "matches": 2,
        "saved": {"bytes": 2000, "launches": 3},
    },
    "fired 1 time · saves 1 launch a step": {"matches": 1, "saved": {"launches": 1}},
    "matched nothing": {"matches": 0, "refused": [], "saved": {"bytes": 0, "launches": 0}},
    "matched nothing · 2 left, such as mul: it is read again": {
        "matches": 0,
        "refused": ["mul: it is read again", "x"],
    },
    "skipped: target cpu is not cuda": {
        "matches": 0,
        "skipped": "target cpu is not cuda",
    },
}


@pytest.mark.parametrize("words", REPORTS)
def test_compile_says_of_each_pass_what_it_did(words):
    assert said(REPORTS[words]) == words
    assert pass_lines([{"name": "mine", **REPORTS[words]}]) == f"  mine  {words}"
