"""The recipes for CI do what they say: the action's own shell, the Dockerfile's own commands."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from support.recipes import (
    ACTION,
    DOCKERFILE,
    KNOWN,
    WORKFLOW,
    action,
    dockerfile,
    environment,
    workflow,
)
from support.sources import ROOT

from vcc.cache.store import Store

LIST = '[[build]]\nmodel = "demo"\ncompile = "none"\ndtype = ["fp32", "bf16"]\n'
BIN = Path(sys.executable).parent
SHA = "0a4d55a8d778e5022fab701977c5d840bbc486d0"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="check-jsonschema needs Python 3.11")
@pytest.mark.parametrize(
    ("file", "schema"), [(ACTION, "github-actions"), (WORKFLOW, "github-workflows")]
)
def test_files_are_of_githubs_schema(file, schema):
    vendored = resources.files("check_jsonschema") / "builtin_schemas" / "vendor"
    assert (vendored / f"{schema}.json").is_file()
    words = [str(BIN / "check-jsonschema"), "--builtin-schema", f"vendor.{schema}", str(file)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not installed")
def test_actionlint_has_nothing_to_say(tmp_path):
    done = subprocess.run(["actionlint", str(WORKFLOW)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_workflow_gives_the_action_only_what_it_takes():
    known = action()["inputs"].keys()
    steps = [step for job in workflow()["jobs"].values() for step in job["steps"]]
    given = [step["with"] for step in steps if "/vcc@" in step.get("uses", "")]
    assert len(given) == 2
    assert {name for one in given for name in one} <= known


def test_only_the_job_of_the_protected_branch_has_secrets():
    jobs = workflow()["jobs"]
    assert "secrets." in json.dumps(jobs["build"])
    assert "secrets." not in json.dumps(jobs["check"])
    assert "pull_request_target" not in WORKFLOW.read_text()


def test_inputs_reach_the_shell_as_variables_and_never_as_code():
    for step in action()["runs"]["steps"]:
        assert "${{" not in step["run"]
        used = set(re.findall(r"\$\{?(INPUT_[A-Z_]+)", step["run"]))
        assert used == {name for name in step["env"] if name.startswith("INPUT_")}


class Runner:
    """Runs the steps of the action as GitHub's runner does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "runner"
        self.home.mkdir()
        for name in ("output", "summary", "path"):
            (self.home / name).touch()

    def step(self, name: str, **inputs: str) -> subprocess.CompletedProcess[str]:
        (found,) = [one for one in action()["runs"]["steps"] if one["name"] == name]
        known = {key: str(one.get("default", "")) for key, one in action()["inputs"].items()}
        given = {**known, **{key.replace("_", "-"): value for key, value in inputs.items()}}
        assert given.keys() == known.keys()
        own = {
            key: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: given[m[1]], value)
            for key, value in found["env"].items()
        }
        script = self.home / "step.sh"
        script.write_text(found["run"])
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
            cwd=self.folder,
            env={**self._environment(), **own},
            capture_output=True,
            text=True,
            timeout=300,
        )

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.home}:{BIN}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "RUNNER_TEMP": str(self.home),
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_OUTPUT": str(self.home / "output"),
            "GITHUB_STEP_SUMMARY": str(self.home / "summary"),
            "GITHUB_PATH": str(self.home / "path"),
            "GITHUB_SHA": SHA,
            "VCC_CACHE_DIR": str(self.folder / "store"),
            "VCC_TRUST_DIR": str(self.folder / "trust"),
        }

    def outputs(self) -> dict[str, str]:
        lines = (self.home / "output").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)


@pytest.fixture
def runner(tmp_path):
    (tmp_path / "vcc.toml").write_text(LIST)
    return Runner(tmp_path)


def key(runner: Runner) -> str:
    words = [str(BIN / "vcc"), "sign", "--new-key", str(runner.folder / "ci.key")]
    subprocess.run(words, check=True, capture_output=True)
    return (runner.folder / "ci.key").read_text()


def fake_python(runner: Runner) -> None:
    """A python3 whose venv's Python writes down its words, a line for each call."""
    fake = runner.home / "python3"
    fake.write_text(
        '#!/bin/sh\nmkdir -p "$3/bin"\n'
        'printf \'#!/bin/sh\\necho "$@" >>"%s/words"\\n\' "$RUNNER_TEMP" '
        '>"$3/bin/python"\nchmod +x "$3/bin/python"\n'
    )
    fake.chmod(0o755)


PIP = "-m pip install --disable-pip-version-check"


def test_the_action_installs_in_an_environment_of_its_own(runner):
    fake_python(runner)
    done = runner.step("Install vcc", install="torch==2.13.0 ./vcc.whl[hf]", python="python3")
    assert done.returncode == 0, done.stderr
    said = (runner.home / "words").read_text().splitlines()
    assert said == [f"{PIP} torch==2.13.0 ./vcc.whl[hf]"]
    assert (runner.home / "path").read_text() == f"{runner.home}/vcc/bin\n"


def test_the_action_installs_its_own_checkout_after_torch(runner):
    fake_python(runner)
    done = runner.step("Install vcc", python="python3")
    assert done.returncode == 0, done.stderr
    said = (runner.home / "words").read_text().splitlines()
    assert said == [
        f"{PIP} -c {ROOT}/constraints.txt scikit-build-core cmake ninja torch",
        f"{PIP} -c {ROOT}/constraints.txt --no-build-isolation {ROOT}[hf,remote,sign]",
    ]


def test_the_action_checks_annotates_and_fails(runner):
    done = runner.step("Prewarm", check="true")
    assert done.returncode == 1
    assert done.stderr.count("::error file=vcc.toml,line=1,col=1::demo · ") == 2
    assert "| demo · fp32" in (runner.home / "summary").read_text()
    assert runner.outputs() == {"report": f"{runner.home}/vcc-prewarm.json", "exit": "1"}
    assert json.loads(Path(runner.outputs()["report"]).read_text())["counts"]["missing"] == 2


def test_the_action_builds_signs_pushes_and_restores(runner, tmp_path):
    remote = f"file://{tmp_path / 'remote'}"
    words = {"remote": remote, "push": "true", "signing_key": key(runner), "builder": "ci-main"}
    done = runner.step("Prewarm", **words, epoch="7", budget="1h", jobs="1")
    assert done.returncode == 0, done.stderr
    assert runner.outputs()["exit"] == "0"
    report = json.loads(Path(runner.outputs()["report"]).read_text())
    assert all(len(one["notes"]) == 2 for one in report["builds"])
    assert "BEGIN" not in done.stdout + done.stderr
    shutil.rmtree(tmp_path / "store")
    restored = runner.step("Restore from the remote", remote=remote, trust="ci.key.pub")
    assert restored.returncode == 0, restored.stderr
    assert len(list(Store.open(tmp_path / "store").entries())) == 2
    assert runner.step("Prewarm", check="true").returncode == 0


def test_a_restore_that_fails_is_left_to_the_next_step(runner, tmp_path):
    done = runner.step("Restore from the remote", remote=f"file://{tmp_path / 'none'}")
    assert done.returncode == 0
    assert "vcc prewarm --check ended with 1" in done.stdout


def test_one_shard_of_the_list(runner):
    done = runner.step("Prewarm", check="true", shard="1/1", cache_dir="other")
    assert done.returncode == 1
    report = json.loads(Path(runner.outputs()["report"]).read_text())
    assert report["other_shards"] == 0


def test_hostile_inputs_are_words(runner):
    done = runner.step("Prewarm", check="true", file="$(touch hacked); `touch hacked`")
    assert done.returncode == 2
    assert not (runner.folder / "hacked").exists()


def test_the_dockerfile_has_known_instructions_and_sources():
    stages = dockerfile()
    assert len(stages) == 2
    assert {one.name for stage in stages for one in stage} <= set(KNOWN)
    assert stages[0][0].text.endswith("AS artifacts")
    (copied,) = [one.text for one in stages[1] if one.name == "COPY"]
    assert copied == "--from=artifacts /opt/vcc /opt/vcc"
    users = [one.text for one in stages[1] if one.name == "USER"]
    assert users == ["server"]
    assert "# 1." in DOCKERFILE.read_text()


def test_the_commands_of_the_dockerfile_run_and_the_layer_is_read_only(runner, tmp_path):
    """On this machine: /opt/vcc and the bucket are folders, pip and useradd are left out."""
    remote = f"file://{tmp_path / 'remote'}"
    built = runner.step("Prewarm", remote=remote, push="true", signing_key=key(runner))
    assert built.returncode == 0, built.stderr
    shutil.rmtree(tmp_path / "store")
    first, second = dockerfile()
    done = [run(words, environment(first), tmp_path) for words in vcc_commands(first)]
    assert [one.returncode for one in done] == [0] * 3, [one.stderr for one in done]
    layer = tmp_path / "opt"
    subprocess.run(["chmod", "-R", "a-w,a+rX", str(layer)], check=True)
    before = listing(layer)
    (entry,) = [one.words for one in second if one.name == "ENTRYPOINT"]
    (words,) = [one.words for one in second if one.name == "CMD"]
    answered = run([*entry, *words], environment(second), tmp_path)
    assert answered.returncode == 0, answered.stderr
    boot = json.loads((tmp_path / "boot.json").read_text())
    assert (boot["warm"], boot["hits"][0]["tier"]) == (True, "lower 1")
    assert boot["hits"][0]["trust"].startswith("signed by ci")
    assert listing(layer) == before


def vcc_commands(stage) -> list[list[str]]:
    return [words for one in stage for words in one.commands if words[0] == "vcc"]


def run(words: list[str], variables: dict[str, str], folder: Path):
    """A command of an image, with the places of this machine for those of the image."""
    places = {
        "/opt/vcc": str(folder / "opt"),
        "s3://team-cache/vcc": f"file://{folder / 'remote'}",
        "/tmp/boot.json": str(folder / "boot.json"),
    }

    def here(text: str) -> str:
        for place, other in places.items():
            text = text.replace(place, other)
        return text

    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    own = {"VCC_CACHE_DIR": str(folder / "own"), **{k: here(v) for k, v in variables.items()}}
    return subprocess.run(
        [str(BIN / "vcc"), *map(here, words[1:])],
        cwd=folder,
        env={**kept, **own},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def listing(folder: Path) -> list[tuple[str, int, int]]:
    found = sorted(folder.rglob("*"))
    return [(str(one), one.lstat().st_size, one.lstat().st_mtime_ns) for one in found]
