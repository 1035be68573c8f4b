"""vcc run -- CMD as a user meets it."""

from __future__ import annotations

import json
import sys

import pytest
from support.cli_reference import PAGE, differences, shapes

from vcc.cache.errors import Exit

MAKE = (
    "import os, pathlib\n"
    "folder = pathlib.Path(os.environ['TORCHINDUCTOR_CACHE_DIR'], 'fxgraph', 'ab', 'key')\n"
    "print('there' if folder.exists() else 'absent', flush=True)\n"
    "folder.mkdir(parents=True, exist_ok=True)\n"
    "(folder / 'code').exists() or (folder / 'code').write_bytes(b'x' * 1000)\n"
)
PYTHON = (sys.executable, "-c", MAKE)


@pytest.fixture
def go(spawn, tmp_path, monkeypatch):
    """Run in a process of its own, with a temporary folder of its own."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("VCC_TRUST_DIR", str(tmp_path / "trust"))

    def run(*words: str):
        process = spawn("run", *words)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    return run


def test_output_is_the_programs_and_what_vcc_says_is_beside_it(go, tmp_path):
    code, out, err = go("--name", "serve", "--report", str(tmp_path / "r.json"), "--", *PYTHON)
    assert (code, out) == (0, "absent\n"), err
    assert "vcc: serve: nothing restored: no caches of any program" in err
    assert "1.0 kB saved as artifact" in err
    report = json.loads((tmp_path / "r.json").read_text())
    assert differences(shapes(PAGE.read_text())["guest"], report) == []
    code, out, err = go("--name", "serve", "--", *PYTHON)
    assert (code, out) == (0, "there\n")
    assert "vcc: serve: 1 file, 1.0 kB, restored from artifact" in err
    assert "nothing saved: nothing new was made" in err


def test_words_after_the_dashes_belong_to_the_program(go):
    code = "import sys; print(sys.argv[1:]); sys.exit(9)"
    done = go("--", sys.executable, "-c", code, "--json", "--help", "--", "-x")
    assert done[:2] == (9, "['--json', '--help', '--', '-x']\n")


def test_a_program_that_is_not_there_is_an_error_of_usage(go):
    code, _, err = go("--", "no-such-program")
    assert code == Exit.USAGE
    assert "no such program on PATH" in err
    assert go("--name", "x", "--")[0] == Exit.USAGE


def test_without_stored_caches_require_warm_is_a_negative_answer(go):
    code, out, err = go("--require-warm", "--", *PYTHON)
    assert (code, out) == (Exit.NEGATIVE, "")
    assert "run it once without --require-warm" in err


def test_a_report_that_cannot_be_written_changes_no_exit_code(go):
    code, _, err = go("--report", "/no/such/place", "--", *PYTHON)
    assert code == 0
    assert "cannot write the report" in err


def test_help_tells_the_form_with_a_command(vcc):
    assert "--max-size" in vcc("run", "--help", "--").out
    assert "vcc run -- CMD" in vcc("run", "--help").out
