"""Boots on a real device: what the process is made of, and input that must be refused by name."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.gpu_jobs import Done, python, vcc
from support.resident import WATCHED, by_mapping

from vcc.engine.models.source import DEMO

pytestmark = pytest.mark.gpu

TARGET = ("--target", "sm_90", "--dtype", "bf16")
LIMITS = ("--max-model-len", 512, "--max-num-seqs", 16)
PROMPT = ("--prompt", "It is a truth", "--max-new-tokens", 8, "--temperature", 0)
RUN = ("run", *LIMITS, *TARGET, "--require-warm", "--json", *PROMPT)
RING = 32 << 20

SESSION = """
import os, sys
from pathlib import Path
from vcc.cache.errors import VccError
from vcc.cache.store import Store
from vcc.cli.request import ModelOptions, build_request
from vcc.engine.request import settle
from vcc.engine.runtime.generate import generate
from vcc.engine.runtime.sample import GREEDY
from vcc.engine.runtime.requests import Request
from vcc.engine.session import Session, open_session

def runner():
    limits = {"max_model_len": 512, "max_num_seqs": 16}
    asked = build_request(ModelOptions("demo", target="sm_90", dtype="bf16", **limits))
    session = Session(settle(asked), Store.open(Path(sys.argv[1])), require_warm=True)
    return open_session(session, [64]).booted.runner

def tokens(runner, prompt):
    return [event.token for event in generate(runner, [Request(0, prompt, GREEDY, 8)])]
"""

FORKED = """
first = runner()
tokens(first, (5, 6, 7))
child = os.fork()
if child == 0:
    try:
        tokens(first, (5, 6, 7))
    except VccError as error:
        print(error, error.hint)
        sys.stdout.flush()
        os._exit(int(error.exit))
    os._exit(0)
_, status = os.waitpid(child, 0)
print(tokens(first, (5, 6, 7)) == tokens(first, (5, 6, 7)))
sys.exit(os.waitstatus_to_exitcode(status))
"""

TWO = """
one = runner()
alone = tokens(one, (5, 6, 7)), tokens(one, (9, 10))
two = runner()
assert (tokens(two, (5, 6, 7)), tokens(one, (9, 10))) == alone
assert (tokens(one, (5, 6, 7)), tokens(two, (9, 10))) == alone
del one
assert tokens(two, (5, 6, 7)) == alone[0]
"""

DISCARDED = """
one = runner()
before = tokens(one, (5, 6, 7))
one.arena.discard(["weights"])
try:
    tokens(one, (5, 6, 7))
except VccError as error:
    print(error, error.hint)
    sys.exit(int(error.exit))
"""

FAULTY = """
import numpy as np
from vcc.engine.runtime.player.handle import Inputs, Mode, Parts, Read, Shape

one = runner()
tokens(one, (5, 6, 7))
layout, handle = one._parts.layout, one.player
slot = handle.slot()
for name, value in {"positions": 40, "slot_mapping": 0, "seq_lens": 41, "input_ids": 5}.items():
    layout.array(slot, name)[0] = value
layout.array(slot, "query_start")[:2] = 0, 1
layout.array(slot, "block_table")[: one.limits.max_blocks_per_seq] = 2**27  # far outside
codes = []
for _ in range(2):
    try:
        handle.step(Shape(Mode.PLAIN, 1, 1, Parts.UNIFORM), 1, slot, Inputs.STEP, Read.LOGITS)
    except VccError as error:
        codes.append(int(error.exit))
        print(error, error.hint)
try:
    tokens(one, (5, 6, 7))
except VccError as error:
    codes.append(int(error.exit))
print(codes)
sys.stdout.flush()
os._exit(0)
"""

HOG = """
import sys, torch
free, _ = torch.cuda.mem_get_info()
held = torch.empty(free - int(sys.argv[1]), dtype=torch.uint8, device="cuda")
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the demo for this device."""
    store = tmp_path_factory.mktemp("boot") / "store"
    done = vcc("compile", "demo", "--mode", "full", *LIMITS, *TARGET, store=store)
    assert done.code == 0, done.text[-4000:]
    return store


@pytest.fixture
def store(shelf: Path, tmp_path: Path) -> Path:
    """A store of the test's own."""
    return Path(shutil.copytree(shelf, tmp_path / "store"))


def run(store: Path, *more: object, model: object = "demo", **environment: str) -> Done:
    return vcc(RUN[0], model, *RUN[1:], *more, store=store, **environment)


def test_a_boot_imports_nothing_heavy_and_stays_small(shelf: Path) -> None:
    done = python("-c", WATCHED, "run", "demo", *RUN[1:], VCC_CACHE_DIR=str(shelf))
    assert done.code == 0, done.out[-4000:] + done.err[-4000:]
    measured = json.loads(done.err.strip().splitlines()[-1])
    resident = by_mapping(measured["smaps"])
    print(f"peak {measured['peak_rss']}, at the end {resident}")
    assert measured["heavy"] == []
    assert measured["peak_rss"] < 300e6 + RING, resident


def test_the_ledger_sums_to_the_wall_time(shelf: Path) -> None:
    report = run(shelf).json
    assert sum(report["phases"].values()) == pytest.approx(report["seconds"], rel=0.05)
    assert report["phases"]["other"] < 0.05 * report["seconds"]
    assert report["counters"]["compiles"] == 0


def test_the_demo_answers_in_words(shelf: Path) -> None:
    """A trained model: what it says is text, of as many tokens as asked for."""
    done = run(shelf)
    assert done.json["prompts"][0]["text"].strip()
    assert len(done.json["prompts"][0]["token_ids"]) == 8


def test_an_artifact_of_another_architecture_is_not_taken(tmp_path: Path) -> None:
    place = tmp_path / "store"
    words = ("--mode", "full", *LIMITS, "--dtype", "bf16", "--target", "sm_80")
    assert vcc("compile", "demo", *words, store=place).code == 0
    done = vcc("run", "demo", *words, "--require-warm", *PROMPT, store=place)
    assert done.code in (1, 3)
    assert "sm_80" in done.text


def test_too_little_memory_is_told_in_bytes(shelf: Path) -> None:
    with hog(leave=300 << 20):
        done = run(shelf)
    assert done.code == 3, done.text[-2000:]
    assert "memory" in done.text.lower()
    assert "Traceback" not in done.text
    assert run(shelf).code == 0


@contextmanager
def hog(leave: int) -> Iterator[None]:
    """Another process that holds all memory of the device but so many bytes."""
    command = [sys.executable, "-c", HOG, str(leave)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        yield
        process.stdin.close()


def test_a_missing_driver_is_told(shelf: Path) -> None:
    done = run(shelf, VCC_LIBCUDA="/nowhere/libcuda.so.1")
    assert done.code in (1, 3)
    assert "/nowhere/libcuda.so.1" in done.text


def test_weights_that_lack_a_tensor_are_refused_by_name(shelf: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    place = Path(shutil.copytree(DEMO, tmp_path / "model"))
    file = place / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, file)
    done = run(shelf, model=place)
    assert done.code == 2
    assert "model.layers.1.mlp.up_proj.weight" in done.text


def test_weights_that_are_cut_short_are_refused(shelf: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(DEMO, tmp_path / "model"))
    file = place / "model.safetensors"
    with file.open("r+b") as stream:
        stream.truncate(file.stat().st_size // 2)
    done = run(shelf, model=place)
    assert done.code == 2
    assert "model.safetensors" in done.text


def test_a_damaged_cubin_is_never_loaded(store: Path) -> None:
    cubins = [f for f in store.rglob("*") if f.is_file() and f.read_bytes()[:4] == b"\x7fELF"]
    assert cubins
    for file in cubins:
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.chmod(0o600)
        file.write_bytes(data)
    done = run(store)
    assert done.code == 7, done.text[-2000:]


def test_a_prompt_beyond_the_declared_length_is_refused(shelf: Path, tmp_path: Path) -> None:
    (tmp_path / "long.json").write_text(json.dumps([[7] * 600]))
    words = ("run", "demo", *LIMITS, *TARGET, "--require-warm", "--prompts", tmp_path / "long.json")
    done = vcc(*words, store=shelf)
    assert done.code == 2
    assert "512" in done.text


def test_a_forked_child_is_refused_and_its_parent_goes_on(shelf: Path) -> None:
    done = python("-c", SESSION + FORKED, shelf)
    assert done.code == 3, done.text[-2000:]
    assert "fork" in done.out
    assert done.out.strip().endswith("True")


def test_two_models_live_in_one_process(shelf: Path) -> None:
    done = python("-c", SESSION + TWO, shelf)
    assert done.code == 0, done.text[-2000:]


def test_a_step_after_its_weights_were_discarded_is_refused(shelf: Path) -> None:
    done = python("-c", SESSION + DISCARDED, shelf)
    assert done.code == 9, done.text[-2000:]
    assert "weights" in done.out


def test_a_kernel_fault_is_told_and_ends_the_device_for_this_process(shelf: Path) -> None:
    """The KV block numbers point far outside; the bounds check of batches is gone around."""
    done = python("-c", SESSION + FAULTY, shelf)
    assert done.code == 0, done.text[-2000:]
    assert "[3, 3, 3]" in done.out, done.text[-2000:]
    assert "ILLEGAL_ADDRESS" in done.out or "illegal" in done.out
    assert run(shelf).code == 0
