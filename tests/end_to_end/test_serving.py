"""A booted model in a program, behind HTTP and behind standard input."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from support.flow import Forcer
from support.sources import ROOT

import vcc
from vcc.cache.errors import UsageError
from vcc.engine.runtime.requests import Request

SERVER = ROOT / "docs" / "recipes" / "server.py"
STDIO = "from vcc.cli.main import main; main()"


@pytest.fixture(scope="module")
def model(demo_shelf: Path) -> vcc.Model:
    monitor = vcc.Monitor()
    found = vcc.load("demo", target="cpu", cache_dir=demo_shelf, require_warm=True, monitor=monitor)
    assert {"verify", "weights", "pieces"} <= {one.name for one in monitor.stages}
    assert found.counters["hits"] == 1
    return found


@pytest.fixture(scope="module")
def url(model: vcc.Model) -> Iterator[str]:
    spec = spec_from_file_location("server_recipe", SERVER)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    server = module.serve(model, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def post(url: str, data: bytes) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_step_gives_the_logits_that_generation_takes(model: vcc.Model) -> None:
    prompt = [5, 6, 7]
    logits = np.asarray(Forcer(model, every_row=False).step({0: prompt})[0].float())
    event = next(iter(model.generate([Request(0, tuple(prompt), max_new_tokens=1)])))
    assert event.token == int(logits[-1].argmax())
    with pytest.raises(UsageError, match="no device buffers"):
        model.io  # noqa: B018 (raises)


def test_load_is_for_decoders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text("def make(): ...\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="plain module") as error:
        vcc.load("net:make", cache_dir=tmp_path / "store")
    assert "vcc.compile" in error.value.hint


def test_a_cache_on_the_cpu_is_not_trimmed(model: vcc.Model) -> None:
    with pytest.raises(UsageError, match="cannot be trimmed") as error:
        model.trim()
    assert "on the CPU" in error.value.why


def test_the_server_has_fewer_lines_than_it_says() -> None:
    assert len(SERVER.read_text().splitlines()) < 80


def test_requests_at_the_same_time_get_the_answers_that_they_get_alone(url: str) -> None:
    said = [{"prompt": text, "max_new_tokens": 8} for text in ("It is a truth", "My dear", "He")]
    alone = [post(url, json.dumps(one).encode()) for one in said]
    assert [code for code, _ in alone] == [200] * 3
    assert len({text for _, text in alone}) == 3
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda one: post(url, json.dumps(one).encode()), said * 4))
    assert found == alone * 4


def answered(url: str, data: bytes) -> int:
    """The code of an answer; 400 too where the server hung up on a body that is too long."""
    try:
        return post(url, data)[0]
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionError) and len(data) > 1 << 20:
            return 400
        raise


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"nonsense", b"[1]", b"3", b"{}", b'{"prompt": ""}', b'{"prompt": 5}', b"\xff"),
        *(b'{"prompt": "x", "temperature": "hot"}', b'{"prompt": [99999]}', b'{"prompt": ["a"]}'),
        *(b'{"prompt": "x", "max_new_tokens": 1.5}', b'{"prompt": "' + b"x" * (1 << 20) + b'"}'),
    ],
    ids=lambda data: data[:24].decode(errors="replace"),
)
def test_a_bad_request_is_an_answer_and_the_server_goes_on(url: str, data: bytes) -> None:
    assert answered(url, data) == 400
    assert post(url, b'{"prompt": "It is", "max_new_tokens": 2}')[0] == 200


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            b'{"prompt": [1.5]}',
            "it holds 1.5, and ids are whole numbers; give ids such as [1, 2, 3]",
        ),
        (b'{"prompt": [true]}', "it holds True"),
        (b'{"prompt": ["a"]}', "is a list of something else than token ids"),
        (b'{"prompt": [99999]}', "vocabulary has ids 0 to"),
        (b"{}", "neither a text nor a list of token ids"),
        (b'{"prompt": "x", "temprature": 1}', "no field temprature; known: prompt, temperature,"),
    ],
    ids=lambda data: data[:24].decode() if isinstance(data, bytes) else "",
)
def test_a_bad_request_is_told_what_is_wrong(url: str, data: bytes, said: str) -> None:
    code, text = post(url, data)
    assert code == 400
    assert said in unescape(text)


def test_a_client_that_goes_away_leaves_no_sequence_behind(model: vcc.Model, url: str) -> None:
    """Its blocks are free long before its answer would have ended; others are answered."""
    place = urllib.parse.urlsplit(url)
    body = json.dumps({"prompt": "It is", "max_new_tokens": 400, "ignore_eos": True}).encode()
    before = model.runner.stat.summary().steps
    with socket.create_connection((place.hostname, place.port), timeout=60) as client:
        head = f"POST / HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        assert b"200" in client.recv(1 << 12)
    deadline = time.monotonic() + 30
    steps = -1
    while steps != (steps := model.runner.stat.summary().steps):
        assert time.monotonic() < deadline
        time.sleep(0.3)
    assert 0 < steps - before < 350
    assert post(url, b'{"prompt": "It is", "max_new_tokens": 2}')[0] == 200


def test_standard_input_is_answered_as_the_command_line_is(demo_shelf: Path) -> None:
    own = os.environ | {"VCC_CACHE_DIR": str(demo_shelf), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", STDIO, "run", "demo", "--require-warm", "--stdio"]
    lines = b'{"prompt": "It is a truth", "max_new_tokens": 5}\nnonsense\n'
    done = subprocess.run(command, input=lines, env=own, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["line"] for one in said if "error" in one] == [2]
    whole = next(one for one in said if "finish_reason" in one)
    plain = [*command[:-1], "--prompt", "It is a truth", "--max-new-tokens", "5", "--json"]
    report = subprocess.run(plain, env=own, capture_output=True, timeout=120, check=True)
    answer = json.loads(report.stdout)["prompts"][0]
    assert (whole["text"], whole["token_ids"]) == (answer["text"], answer["token_ids"])
    for more in (["--prompt", "x"], ["--json"]):
        refused = subprocess.run([*command, *more], env=own, capture_output=True, timeout=60)
        assert refused.returncode == 2
        assert b"goes with neither" in refused.stderr + refused.stdout
