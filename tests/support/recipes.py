"""The recipes for CI: steps of the action, instructions of the Dockerfile, as plain values."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any

import yaml

from support.sources import ROOT

ACTION = ROOT / "action.yml"
WORKFLOW = ROOT / "docs" / "examples" / "prewarm.yml"
DOCKERFILE = ROOT / "docs" / "examples" / "Dockerfile"

KNOWN = ("FROM", "RUN", "COPY", "WORKDIR", "ENV", "USER", "ENTRYPOINT", "CMD")


def action() -> dict[str, Any]:
    """The action's metadata."""
    return yaml.safe_load(ACTION.read_text())


def workflow() -> dict[str, Any]:
    """The example's workflow; YAML reads the key `on` as true."""
    return yaml.safe_load(WORKFLOW.read_text())


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile."""

    name: str
    text: str

    @property
    def commands(self) -> list[list[str]]:
        """The commands of a RUN, its mounts left out, each as words."""
        text = re.sub(r"--mount=\S+\s*", "", self.text)
        return [shlex.split(part) for part in text.split("&&")] if self.name == "RUN" else []

    @property
    def words(self) -> list[str]:
        """An ENTRYPOINT or CMD in its exec form."""
        return json.loads(self.text)


def dockerfile() -> list[list[Instruction]]:
    """The instructions of each stage."""
    text = re.sub(r"\\\n\s*", "", DOCKERFILE.read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    stages: list[list[Instruction]] = []
    for line in lines:
        name, _, rest = line.partition(" ")
        if name == "FROM":
            stages.append([])
        stages[-1].append(Instruction(name, rest.strip()))
    return stages


def environment(stage: list[Instruction]) -> dict[str, str]:
    """The variables that a stage sets."""
    words = [word for one in stage if one.name == "ENV" for word in shlex.split(one.text)]
    return dict(word.split("=", 1) for word in words)
