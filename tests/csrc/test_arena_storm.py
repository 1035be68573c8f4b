"""The arena under the address and undefined-behaviour sanitizers, with failures at random calls."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.fake_cuda import Fake

CSRC = Path(__file__).parents[2] / "csrc"
FLAGS = ("-std=c++20", "-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def run(command: Sequence[str], **environment: str) -> str:
    """The output of a command that must succeed."""
    env = {**os.environ, **environment}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built with sanitizers as one file: a fifth of the time of one after another."""
    folder = tmp_path_factory.mktemp("storm")
    sources = [Path(__file__).with_name("arena_storm.cpp")]
    for part in ("abi", "driver", "memory"):
        sources += sorted((CSRC / part).glob("*.cpp"))
    whole = folder / "whole.cpp"
    whole.write_text("".join(f'#include "{source}"\n' for source in sources))
    made = str(folder / "storm")
    run(["g++", *FLAGS, f"-I{CSRC}", str(whole), "-o", made, "-ldl", "-lpthread"])
    return folder / "storm"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_use_of_the_arena_breaks_memory_or_loses_contents(
    fake: Fake, storm: Path, seed: int
) -> None:
    settings = fake.environment(memory=512 << 20)
    said = run([str(storm), fake.path, str(seed), "400"], **settings)
    refused, sleeps, wakes = (int(part.split()[0]) for part in said.split(","))
    assert refused > 20
    assert sleeps > 10
    assert wakes > 10
