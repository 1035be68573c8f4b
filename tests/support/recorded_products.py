"""Products recorded by a process of its own on doubles of the driver, CUPTI and cuBLASLt."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.fake_libraries import environment
from vcc.engine.config.environment import recorder_environment
from vcc.engine.tune.job import Answer, Job
from vcc.engine.tune.shapes import GemmShape

SHAPES = (GemmShape(1, 64, 32, "bfloat16"), GemmShape(8, 64, 32, "bfloat16", True))


def record(root: Path, shapes: tuple[GemmShape, ...] = SHAPES, **settings: Any) -> dict[str, Any]:
    again = settings.pop("again", False)
    answer = root.parent / "answer.json"
    done = subprocess.run(
        [sys.executable, "-m", "vcc.engine.tune.helper", str(answer)],
        input=Job(root, shapes, again=again).text().encode(),
        env=recorder_environment(environment(**settings)),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return dict(json.loads(answer.read_text()))


def answered(root: Path, *args: Any, **settings: Any) -> Answer:
    found = record(root, *args, **settings)
    assert "error" not in found, found
    return Answer.of_dict(found)
