"""What a GPU build makes, as bytes and plain values: torch-free, so a parent process reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from vcc.engine.graphs.blob_names import table_name
from vcc.engine.graphs.planner import sources
from vcc.engine.graphs.planner.sources import KernelSource, ValuePlace

SOURCES, REPORT = "sources.json", "report.json"
TABLES, CUBINS, CONSTANTS, GOLDENS = "table", "cubin", "constant", "golden"


@dataclass(frozen=True, slots=True)
class StepContent:
    """The step of one range of tokens, or of every size.

    Attributes:
        sizes: the range, as `9-32` or `16-16`; empty where one table serves every size.
        table: its node table.
        values: where each value of the step program lies; for the CPU check, in no artifact.
        calls: the values that each call of the step program gives; for the CPU check too.
    """

    sizes: str
    table: bytes
    values: Mapping[str, ValuePlace] = field(default_factory=dict)
    calls: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class GpuContent:
    """A build's result.

    Attributes:
        steps: node tables, ranges ascending, then exact sizes.
        cubins: by SHA-256 in hex.
        constants: raw data by name.
        sources: what each cubin was compiled from; for the CPU check, in no artifact.
        info: figures for the manifest: constants, passes, pieces, table or ranges.
        stages: seconds by stage.
        counters: by name.
        toolkit: version of the assembler, such as "12.8".
        driver: the oldest CUDA driver that loads the cubins.
        goldens: by piece; see `planner.golden`.
        reads: environment variables that were read, with who read them.
    """

    steps: tuple[StepContent, ...]
    cubins: Mapping[str, bytes]
    constants: Mapping[str, bytes]
    sources: Mapping[str, KernelSource]
    info: Mapping[str, Any]
    stages: Mapping[str, float]
    counters: Mapping[str, int]
    toolkit: str
    driver: int
    goldens: Mapping[str, bytes] = field(default_factory=dict)
    reads: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def blobs(self) -> dict[str, bytes]:
        """Every blob of the artifact by its name."""
        return {
            **{table_name(one.sizes): one.table for one in self.steps},
            **{f"{CUBINS}/{digest}": data for digest, data in sorted(self.cubins.items())},
            **{f"{CONSTANTS}/{name}": data for name, data in self.constants.items()},
            **{f"{GOLDENS}/{piece}": data for piece, data in sorted(self.goldens.items())},
        }


def write(content: GpuContent, folder: Path) -> None:
    """Leave a result in a folder; the report last, as it says that all is there."""
    for name in (TABLES, CUBINS, CONSTANTS, GOLDENS):
        (folder / name).mkdir()
    for index, step in enumerate(content.steps):
        (folder / TABLES / str(index)).write_bytes(step.table)
    for digest, data in content.cubins.items():
        (folder / CUBINS / digest).write_bytes(data)
    for index, data in enumerate(content.constants.values()):
        (folder / CONSTANTS / str(index)).write_bytes(data)
    for piece, data in content.goldens.items():
        (folder / GOLDENS / piece).write_bytes(data)
    (folder / SOURCES).write_bytes(sources.encode(content.sources))
    report = {
        "constants": list(content.constants),
        "steps": [_report(step) for step in content.steps],
        "info": content.info,
        "stages": content.stages,
        "counters": content.counters,
        "toolkit": content.toolkit,
        "driver": content.driver,
        "reads": content.reads,
    }
    half = folder / f"{REPORT}.half"
    half.write_text(json.dumps(report), encoding="utf-8")
    half.replace(folder / REPORT)


def _report(step: StepContent) -> dict[str, Any]:
    values = {name: asdict(place) for name, place in step.values.items()}
    return {"sizes": step.sizes, "values": values, "calls": step.calls}


def read(folder: Path) -> GpuContent:
    """Read what `write` left."""
    report = json.loads((folder / REPORT).read_text(encoding="utf-8"))
    names = report.pop("constants")
    steps = enumerate(report.pop("steps"))
    return GpuContent(
        steps=tuple(
            StepContent(
                sizes=found["sizes"],
                table=(folder / TABLES / str(index)).read_bytes(),
                values=msgspec.convert(found["values"], dict[str, ValuePlace]),
                calls=tuple(map(tuple, found["calls"])),
            )
            for index, found in steps
        ),
        cubins={file.name: file.read_bytes() for file in sorted((folder / CUBINS).iterdir())},
        constants={
            name: (folder / CONSTANTS / str(index)).read_bytes() for index, name in enumerate(names)
        },
        goldens={file.name: file.read_bytes() for file in sorted((folder / GOLDENS).iterdir())},
        sources=sources.decode((folder / SOURCES).read_bytes()),
        **report,
    )
