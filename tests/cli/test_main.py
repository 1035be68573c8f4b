"""Errors become text, JSON and stable exit codes; start-up stays cheap and free of torch."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys

import pytest

from vcc.cache import errors
from vcc.cli.app import COMMANDS, GROUPS

CHEAP = (["--help"], ["--version"], ["inspect", "cache"], ["run", "--help"])


@pytest.mark.parametrize(("words", "name"), [([], "vcc"), (["cache"], "vcc cache")])
def test_without_a_command_the_answer_is_the_help(vcc, words, name):
    done = vcc(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.strip() == vcc(*words, "--help").out.strip()
    assert done.err.startswith(f"Usage: {name} ")


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (["bogus"], 2, "No such command 'bogus'"),
        (["compile"], 2, "Missing argument 'MODEL'"),
        (["compile", "demo", "--jobs", "-1"], 2, "Invalid value for '--jobs'"),
        (["compile", "demo", "--bogus"], 2, "No such option"),
        (["compile", "/no/such/model"], 2, "no model at /no/such/model"),
        (["compile", "demo", "--target", "sm90"], 2, 'cannot read target "sm90"'),
        (["cache", "ls", "--cache-dir", ""], 2, "Invalid value for '--cache-dir': it is empty"),
        (["compile", "m" * 300], 2, "no model at mmm"),
        (["compile", "demo", "--shapes", "1" * 5000], 2, "cannot read --shapes"),
        (["compile", "demo", "--mode", "ful"], 2, 'unknown cuda_graph_mode "ful"'),
        (["compile", "demo", "-O", "4"], 2, 'unknown level "4"'),
        (["compile", "demo", "--compile", "stock"], 2, "STOCK_TORCH_COMPILE gives no artifact"),
        (["compile", "demo", "--dtype", "fp16"], 3, "dtype fp16 is not possible on cpu"),
        (["compile", "demo", "--shapes", "0,1"], 2, 'cannot read --shapes "0,1"'),
        (["compile", "demo", "--compilation-config", "{"], 2, "not valid JSON"),
        (["compile", "demo", "--compilation-config", '{"moed": 3}'], 2, '"moed"'),
        (["compile", "demo", "--max-model-len", "4096"], 2, "max_model_len 4096 is too long"),
        (["run", "demo", "--prompt", "a", "--golden", "two"], 2, 'unknown --golden "two"'),
        (["run", "demo", "--prompt", "a", "--require-warm"], 1, "no artifact for demo"),
        (["run", "demo", "--prompt", "a", "--top-p", "2"], 2, "top-p 2.0 is out of range"),
        (["run", "demo", "--prompt", ""], 2, "prompt 0 is empty"),
        (["run", "demo", "--prompt", "a b " * 600], 2, "prompt 0 is too long"),
        (["run", "demo", "--prompts", "/no/file"], 2, "cannot read prompts from /no/file"),
        (["inspect", "artifact", "abcd"], 1, "no artifact abcd"),
    ],
)
def test_bad_input_has_a_code_and_the_same_content_as_json(vcc, words, code, what):
    plain = vcc(*words)
    assert plain.code == code
    assert f"error: {what}" in plain.err or what in plain.err.splitlines()[0]
    assert plain.out == ""
    if len(words) > 1 and "--bogus" not in words:
        as_json = vcc(*words, "--json")
        assert as_json.code == code
        error = as_json.json["error"]
        assert set(error) - {"explanation"} == {"id", "exit", "what", "why", "hint"}
        assert error["exit"] == code
        for label in ("what", "why", "hint"):
            assert error[label] in plain.err
        assert as_json.err == ""


KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.VccError)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_of_the_engine_keeps_its_code(vcc, engine, kind):
    engine.build_error = kind("it broke", "because", "mend it")
    done = vcc("compile", "demo", "--json")
    assert done.code == kind.exit
    assert done.json["error"] == engine.build_error.as_dict()


@pytest.mark.parametrize(
    ("raised", "code", "what"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("one / none"), 70, "vcc failed unexpectedly"),
        (RecursionError(), 70, "vcc failed unexpectedly"),
    ],
)
def test_other_exceptions(vcc, engine, raised, code, what):
    engine.build_error = raised
    done = vcc("compile", "demo")
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith(f"error: {what}")
    assert "Traceback" not in done.err
    assert vcc("compile", "demo", "--json").json["error"]["exit"] == code


def test_debug_shows_where_an_unexpected_error_came_from(spawn, tmp_path):
    code = (
        "import sys; from vcc.cli import main; import vcc.cache.store as store\n"
        "store.Store.open = lambda *a, **k: 1 / 0\n"
        "main.main(['inspect', 'cache'])"
    )
    os.environ["VCC_LOG_LEVEL"] = "debug"
    try:
        done = spawn(code=code)
    finally:
        del os.environ["VCC_LOG_LEVEL"]
    _, err = done.communicate(timeout=60)
    assert done.returncode == 70
    assert "ZeroDivisionError: division by zero" in err
    assert "Traceback" in err


WAITING = """
import sys, time
from types import ModuleType
from vcc.cli import main
def build(*rest):
    try:
        print("ready", file=sys.stderr, flush=True)
        time.sleep(60)
    finally:
        print("cleaned", file=sys.stderr, flush=True)
fake = ModuleType("vcc.engine.pipeline")
fake.build = build
sys.modules["vcc.engine.pipeline"] = fake
main.main(["compile", "demo"])
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)]
)
def test_signals_unwind_and_give_their_code(spawn, number, code):
    process = spawn(code=WAITING)
    lines = iter(process.stderr)
    assert any("ready" in line for line in lines)
    process.send_signal(number)
    rest = "".join(lines)
    assert process.wait(timeout=30) == code
    assert "cleaned" in rest
    assert "Traceback" not in rest


@pytest.mark.parametrize("words", [["inspect", "cache"], ["inspect", "cache", "--json"]])
def test_output_that_cannot_be_written_is_an_error_of_its_own(words):
    """A full disk gives the code of storage, a closed output that of a reader that has left."""
    command = [sys.executable, "-c", "from vcc.cli.main import main; main()", *words]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 5
    assert done.stderr.startswith("error: cannot write to standard output\n  why: No space left")
    assert "Traceback" not in done.stderr
    closed = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE, text=True
    )
    assert (closed.returncode, closed.stderr) == (1, "")


def test_a_reader_that_leaves_ends_the_command_quietly(spawn):
    code = "import vcc.cli.app as a\na.out = lambda text: [print('x' * 9999) for _ in range(99)]\n"
    process = spawn(code=code + "from vcc.cli.main import main; main(['--version'])")
    process.stdout.read(10)
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(timeout=30) == 1
    assert err == ""


@pytest.mark.parametrize("words", CHEAP, ids=" ".join)
def test_cheap_commands_import_no_torch_and_no_numpy(spawn, words):
    code = (
        "import sys; from vcc.cli import main; code = main.run(sys.argv[1:])\n"
        "heavy = {'torch', 'numpy', 'triton', 'transformers', 'rich', 'tokenizers'}\n"
        "sys.exit(code or ' '.join(heavy & set(sys.modules)) or 0)"
    )
    process = spawn(*words, code=code)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err


@pytest.mark.parametrize("words", [["--help"], ["inspect", "cache"]], ids=" ".join)
def test_cheap_commands_take_little_cpu(words):
    """At most 0.25 s; the test allows twice that for a loaded machine, best of three."""
    taken = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "vcc.cli.main", *words], check=True, capture_output=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(taken) <= 0.5


def test_finding_an_artifact_imports_no_torch(spawn):
    code = (
        "import sys; from vcc.cli import main\n"
        "code = main.run(['run', 'demo', '--prompt', 'a', '--require-warm'])\n"
        "sys.exit(0 if code == 1 and 'torch' not in sys.modules else 9)"
    )
    process = spawn(code=code)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err


def test_version(vcc):
    from vcc import __version__

    assert vcc("--version").out == f"vcc {__version__}\n"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("vcc ", {*COMMANDS, *GROUPS}),
        ("vcc inspect ", {"artifact", "batches", "cache", "graph", "kernel", "key"}),
        ("vcc compile demo --mode full", {"full", "full_decode_only", "full_and_piecewise"}),
        ("vcc run demo --golden ", {"off", "one", "all"}),
        ("vcc run de", {"demo"}),
    ],
)
def test_completion_offers(typed, offered):
    words = typed.split(" ")
    env = dict(
        os.environ, _VCC_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=str(len(words) - 1)
    )
    code = "import sys; sys.argv[0] = 'vcc'; from vcc.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert set(done.stdout.split()) == offered, done.stderr


def test_a_bad_variable_is_a_usage_error(vcc, monkeypatch):
    monkeypatch.setenv("VCC_LOG_LEVEL", "loud")
    done = vcc("inspect", "cache")
    assert done.code == 2
    assert "VCC_LOG_LEVEL" in done.err


def test_only_the_command_that_is_named_is_read(spawn):
    code = (
        "import sys; from vcc.cli import main; main.run(['inspect', 'cache'])\n"
        "read = {'compile', 'run', 'tune', 'verify', 'doctor'}\n"
        "sys.exit(' '.join(name for name in read if f'vcc.cli.{name}' in sys.modules) or 0)"
    )
    process = spawn(code=code)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err


@pytest.mark.parametrize(
    ("words", "begun"),
    [
        ("run demo", True),
        ("run demo --target sm_90 -p x", True),
        ("run demo --target=cuda -p x", True),
        ("run demo --target cpu", False),
        ("run demo --target=cpu", False),
        ("run --help", False),
        ("compile demo --target sm_90", False),
        ("", False),
    ],
)
def test_a_run_opens_the_gpu_before_anything_else(monkeypatch, words, begun):
    from vcc.cli import main
    from vcc.engine.runtime.player import device

    calls = []
    monkeypatch.setattr(device, "warm_up", lambda: calls.append(1))
    main._begin(words.split())
    assert bool(calls) == begun


def test_the_interpreters_end_looks_through_nothing_that_torch_has_made() -> None:
    """With torch loaded its last collections take longer than a warm answer to a short prompt."""
    code = (
        "import atexit, gc; from vcc.cli.main import main; frozen = gc.get_freeze_count;"
        "atexit.register(lambda: print('frozen', frozen() > 1000)); main(['--version'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "frozen True" in done.stdout
