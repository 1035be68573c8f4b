"""Streams that take no bytes: a word is lost on standard error, a result never silently."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("words", "code"), [(["--help"], 5), (["inspect", "artifact", "ff"], 1), (["nonsense"], 2)]
)
def test_streams_on_a_full_disk_change_no_exit_code(words, code):
    """Standard error that takes no bytes costs the words, standard output is an error."""
    command = [sys.executable, "-c", "from vcc.cli.main import main; main()", *words]
    with open("/dev/full", "w") as full:
        assert subprocess.run(command, stdout=full, stderr=full).returncode == code


def test_a_result_comes_though_standard_error_takes_no_bytes(spawn):
    text = "import vcc.cli.app as a\nfrom vcc.cli.console import err, out\n"
    text += "a.out = lambda text: (err('x' * 9999), err('y'), out('result'))\n"
    with open("/dev/full", "w") as full:
        process = spawn(
            code=text + "from vcc.cli.main import main; main(['--version'])", stderr=full
        )
        assert process.communicate(timeout=30)[0] == "result\n"
    assert process.returncode == 0
