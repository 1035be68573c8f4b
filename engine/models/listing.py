"""What is built in, as a table: for `vcc compile --list-models` and docs/models.md. No torch.

Pieces and passes are not known before a model is traced: `supported.json` beside this file has
them, written by `PYTHONPATH=tests python -m support.models_reference`; a test holds it against
the code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vcc.engine.config.model import DTYPES_OF
from vcc.engine.config.modes import Platform
from vcc.engine.models.architecture_table import ARCHITECTURES, REFUSED, Architecture
from vcc.engine.models.layer_ropes import rope_by_window
from vcc.engine.models.windows import every_layer_slides, window_if_given, window_if_used

FACTS = Path(__file__).with_name("supported.json")


@dataclass(frozen=True, slots=True)
class Listed:
    """One architecture.

    Attributes:
        architecture: as in `config.json`.
        about: its own features.
        pieces: unique pieces of code: the head, the tail, and one for each seam between layers.
        passes: those that fire on it on the CPU with the default configuration.
        dtypes: on the CPU, and more on a GPU.
        refused: settings of its config that are refused.
    """

    architecture: str
    about: str
    pieces: int
    passes: tuple[str, ...]
    dtypes: str
    refused: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def supported() -> tuple[Listed, ...]:
    """Every architecture that is built in, in the table's order."""
    facts = json.loads(FACTS.read_text(encoding="utf-8"))
    return tuple(
        Listed(
            architecture=name,
            about=row.about,
            pieces=facts[name]["pieces"],
            passes=tuple(facts[name]["passes"]),
            dtypes=_dtypes(),
            refused=tuple(_refused(row)),
        )
        for name, row in ARCHITECTURES.items()
    )


def refused_by_name() -> dict[str, str]:
    """Architectures that are refused because of how they work, with the reason."""
    return dict(REFUSED)


def _dtypes() -> str:
    cpu, gpu = ([one.value for one in DTYPES_OF[p]] for p in (Platform.CPU, Platform.CUDA))
    more = [name for name in gpu if name not in cpu]
    return ", ".join(cpu) + (f"; {', '.join(more)} on a GPU" if more else "")


def _refused(row: Architecture) -> Iterator[str]:
    if not row.partial_rope:
        yield "heads rotated in part"
    if row.ropes is not rope_by_window:
        yield "ropes by layer type"
    if row.windows in (every_layer_slides, window_if_given, window_if_used):
        yield "layer types that differ"
    if row.experts is not None:
        yield "experts with another activation than SiLU"
