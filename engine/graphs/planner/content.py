"""What a GPU build makes, as bytes and plain values: torch-free, so a parent process reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from vcc.engine.graphs.planner import sources
from vcc.engine.graphs.planner.sources import KernelSource, ValuePlace

TABLE, SOURCES, REPORT = "table", "sources.json", "report.json"
CUBINS, CONSTANTS, GOLDENS = "cubin", "constant", "golden"


@dataclass(frozen=True, slots=True)
class GpuContent:
    """A build's result.

    Attributes:
        table: the step's node table.
        cubins: by SHA-256 in hex.
        constants: raw data by name.
        sources: what each cubin was compiled from; for the CPU check, in no artifact.
        values: where each value of the step program lies; for the CPU check too.
        info: figures for the manifest: constants, passes, pieces, table.
        stages: seconds by stage.
        counters: by name.
        toolkit: version of the assembler, such as "12.8".
        driver: the oldest CUDA driver that loads the cubins.
        goldens: by piece; see `planner.golden`.
        calls: the values that each call of the step program gives; for the CPU check too.
        reads: environment variables that were read, with who read them.
    """

    table: bytes
    cubins: Mapping[str, bytes]
    constants: Mapping[str, bytes]
    sources: Mapping[str, KernelSource]
    values: Mapping[str, ValuePlace]
    info: Mapping[str, Any]
    stages: Mapping[str, float]
    counters: Mapping[str, int]
    toolkit: str
    driver: int
    goldens: Mapping[str, bytes] = field(default_factory=dict)
    calls: tuple[tuple[str, ...], ...] = ()
    reads: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def blobs(self) -> dict[str, bytes]:
        """Every blob of the artifact by its name."""
        return {
            "table/step": self.table,
            **{f"{CUBINS}/{digest}": data for digest, data in sorted(self.cubins.items())},
            **{f"{CONSTANTS}/{name}": data for name, data in self.constants.items()},
            **{f"{GOLDENS}/{piece}": data for piece, data in sorted(self.goldens.items())},
        }


def write(content: GpuContent, folder: Path) -> None:
    """Leave a result in a folder; the report last, as it says that all is there."""
    for name in (CUBINS, CONSTANTS, GOLDENS):
        (folder / name).mkdir()
    (folder / TABLE).write_bytes(content.table)
    for digest, data in content.cubins.items():
        (folder / CUBINS / digest).write_bytes(data)
    for index, data in enumerate(content.constants.values()):
        (folder / CONSTANTS / str(index)).write_bytes(data)
    for piece, data in content.goldens.items():
        (folder / GOLDENS / piece).write_bytes(data)
    (folder / SOURCES).write_bytes(sources.encode(content.sources))
    report = {
        "constants": list(content.constants),
        "values": {name: asdict(place) for name, place in content.values.items()},
        "calls": content.calls,
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


def read(folder: Path) -> GpuContent:
    """Read what `write` left."""
    report = json.loads((folder / REPORT).read_text(encoding="utf-8"))
    names = report.pop("constants")
    values = msgspec.convert(report.pop("values"), dict[str, ValuePlace])
    return GpuContent(
        table=(folder / TABLE).read_bytes(),
        cubins={file.name: file.read_bytes() for file in sorted((folder / CUBINS).iterdir())},
        constants={
            name: (folder / CONSTANTS / str(index)).read_bytes() for index, name in enumerate(names)
        },
        goldens={file.name: file.read_bytes() for file in sorted((folder / GOLDENS).iterdir())},
        sources=sources.decode((folder / SOURCES).read_bytes()),
        values=values,
        calls=tuple(map(tuple, report.pop("calls"))),
        **report,
    )
