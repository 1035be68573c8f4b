"""Which GPUs a process sees, and what it says where a GPU or a library of NVIDIA's is not there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.gpu_jobs import Done, python, vcc

from vcc.engine.config.environment import recorder_environment
from vcc.engine.tune.job import Job
from vcc.engine.tune.shapes import GemmShape

pytestmark = pytest.mark.gpu

OPTIONS = ("--max-model-len", 256, "--max-num-seqs", 4, "--target", "sm_90", "--dtype", "bf16")
RUN = ("run", "demo", *OPTIONS, "--mode", "full", "--require-warm", "--json")
PROMPT = ("--prompt", "It is a truth", "--max-new-tokens", 4, "--temperature", 0)
RECORD = ("compile", "demo", *OPTIONS, "--compile", "none", "--mode", "full", "--shapes", 1)

INFO = """
import json
from vcc.engine.config.environment import read_environment
from vcc.engine.native import functions
calls = functions({"vcc_device_open": "str i32 -> ptr", "vcc_device_info": "ptr -> str"})
print(calls.vcc_device_info(calls.vcc_device_open(read_environment().libcuda, 0)))
"""

HIDDEN = """
import sys
from vcc.engine.graphs.recorder import calls
found, hidden = calls.candidates, sys.argv[1]
calls.candidates = lambda names: (
    ("/nowhere/" + names[0],) if names[0].startswith(hidden) else found(names)
)
"""
"""As on a machine without a library whose name begins so: nothing else is looked for."""

COMMAND = "from vcc.cli.main import main; del sys.argv[1]; main()"
HELPER = "from vcc.engine.tune.helper import main; main(sys.argv[2])"


@cache
def listed() -> tuple[list[str], list[str]]:
    """UUIDs of all GPUs of the machine, and of MIG slices, as NVIDIA's tool lists them."""
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    return re.findall(r"UUID: (GPU-[0-9a-f-]+)", done.stdout), re.findall(
        r"UUID: (MIG-[0-9a-f-]+)", done.stdout
    )


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the demo."""
    store = tmp_path_factory.mktemp("visible") / "store"
    done = vcc("compile", "demo", "--mode", "full", *OPTIONS, store=store)
    assert done.code == 0, done.text[-4000:]
    return store


def info(visible: str) -> dict[str, Any]:
    """The first device that a process sees."""
    done = python("-c", INFO, CUDA_VISIBLE_DEVICES=visible)
    assert done.code == 0, done.text
    return dict(done.json)


def refused(done: Done, *texts: str) -> None:
    """A device error that says all of this, and is no traceback."""
    assert done.code == 3, f"exit {done.code}\n{done.text[-3000:]}"
    assert [text for text in texts if text not in done.text] == [], done.text[-3000:]
    assert "Traceback" not in done.text


@pytest.mark.parametrize("visible", ["", "99", "-1", "GPU-00000000-0000-0000-0000-000000000000"])
def test_no_device_of_this_name_is_told(shelf: Path, visible: str) -> None:
    hint = "check nvidia-smi, and that CUDA_VISIBLE_DEVICES names a device"
    for words in ((*RUN, *PROMPT), ("tune", "demo", "--json")):
        done = vcc(*words, store=shelf, CUDA_VISIBLE_DEVICES=visible)
        refused(done, "cannot use a CUDA device", "cuInit: ", hint)


def test_recording_without_a_visible_device_is_told(tmp_path: Path) -> None:
    done = vcc(*RECORD, "--json", store=tmp_path, CUDA_VISIBLE_DEVICES="")
    refused(done, "graphs can only be recorded on a GPU", "use --compile vcc")


def test_a_process_uses_the_gpu_that_it_is_given(shelf: Path) -> None:
    gpus, _ = listed()
    if len(gpus) < 2:
        pytest.skip("one GPU on this machine")
    answers = []
    for visible, uuid in (("0", gpus[0]), ("1", gpus[1]), (gpus[1], gpus[1]), ("1,0", gpus[1])):
        assert info(visible)["uuid"] == uuid, visible
        done = vcc(*RUN, *PROMPT, store=shelf, CUDA_VISIBLE_DEVICES=visible)
        assert done.code == 0, done.text[-3000:]
        answers.append(done.json["prompts"][0]["token_ids"])
    assert answers == answers[:1] * 4


def test_a_graph_recorded_on_one_gpu_runs_on_the_other(tmp_path: Path) -> None:
    if len(listed()[0]) < 2:
        pytest.skip("one GPU on this machine")
    done = vcc(*RECORD, "--json", store=tmp_path, CUDA_VISIBLE_DEVICES="0")
    assert done.code == 0, done.text[-3000:]
    words = ("run", "demo", *OPTIONS, "--compile", "none", "--mode", "full", "--shapes", 1)
    answers = []
    for visible in ("0", "1"):
        done = vcc(
            *(*words, "--require-warm", "--json", *PROMPT),
            store=tmp_path,
            CUDA_VISIBLE_DEVICES=visible,
        )
        assert done.code == 0, done.text[-3000:]
        answers.append(done.json["prompts"][0]["token_ids"])
    assert answers[0] == answers[1]


def test_a_whole_gpu_is_no_slice_and_a_slice_is_used_as_one(shelf: Path) -> None:
    gpus, slices = listed()
    if not slices:
        assert info(gpus[0])["mig"] is False
        pytest.skip("no MIG slices on this machine")
    assert info(slices[0])["mig"] is True
    done = vcc(*RUN, *PROMPT, store=shelf, CUDA_VISIBLE_DEVICES=slices[0])
    assert done.code == 0, done.text[-3000:]


def test_recording_without_cupti_says_what_works_without_it(tmp_path: Path) -> None:
    done = python("-c", HIDDEN + COMMAND, "libcupti", *RECORD, VCC_CACHE_DIR=str(tmp_path))
    refused(done, "CUPTI is not on this machine", "/nowhere/libcupti.so", "work without it")


@pytest.mark.parametrize(
    ("library", "name", "works"),
    [("libcupti", "CUPTI", "work without it"), ("libcublasLt", "cuBLASLt", "Triton kernels")],
)
def test_products_without_a_library_say_what_works_without_it(
    tmp_path: Path, library: str, name: str, works: str
) -> None:
    answer = tmp_path / "answer.json"
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN + HELPER, library, str(answer)],
        input=Job(tmp_path, (GemmShape(1, 320, 192, "bfloat16"),)).text(),
        env=recorder_environment(),
        text=True,
        capture_output=True,
        check=False,
    )
    assert answer.exists(), done.stderr[-3000:]
    error = json.loads(answer.read_text())["error"]
    assert error["what"] == f"{name} is not on this machine"
    assert f"/nowhere/{library}.so" in error["why"]
    assert works in error["hint"]
    assert error["exit"] == 3
