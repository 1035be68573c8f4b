"""Adapters that a run is given: names and directories, checked before anything is built."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vcc.cache.errors import UsageError
from vcc.engine.monitor import Ledger

if TYPE_CHECKING:
    from vcc.engine.request import Settled
    from vcc.engine.runtime.batch import StepRunner
    from vcc.engine.runtime.requests import Request

Named = Sequence[tuple[str, Path]]
"""Names of adapters with their directories."""


def parse_adapters(texts: Sequence[str]) -> tuple[tuple[str, Path], ...]:
    """Adapters of `NAME=DIR` texts.

    Raises:
        UsageError: a text of another form, or a name twice.
    """
    found: dict[str, Path] = {}
    for text in texts:
        name, equals, place = text.partition("=")
        if not name or not equals or not place:
            raise UsageError(
                f"--lora {text!r:.80} cannot be read",
                "it has no name or no directory",
                "write --lora NAME=DIR",
            )
        if name in found:
            raise UsageError(f"--lora names {name!r:.60} twice", "each adapter has its own name")
        found[name] = Path(place)
    return tuple(found.items())


def check_adapters(settled: Settled, named: Named) -> None:
    """Read the adapters' files and hold them against the model, whatever rank was declared.

    Raises:
        ModelError: one is malformed, not supported, or not of this model.
    """
    from dataclasses import replace

    from vcc.engine.models.lora.adapter import open_adapter
    from vcc.engine.models.lora.config_file import HIGHEST_RANK
    from vcc.engine.models.lora.spec import lora_of, projections

    lora = lora_of(settled.model)
    if lora is None:
        return
    if settled.request.model.max_lora_rank is None:  # the artifact that answers may take more
        lora = replace(lora, rank=HIGHEST_RANK)
    places = projections(settled.request.source.spec, lora)
    for _, directory in named:
        open_adapter(directory, places, lora)


def check_named(requests: Sequence[Request], names: Sequence[str]) -> None:
    """Raise UsageError for a request whose adapter the run was not given."""
    for request in requests:
        if request.lora and request.lora not in names:
            raise UsageError(
                f"prompt {request.index} is for an adapter called {request.lora[:60]!r}",
                f"given: {', '.join(names) or 'none'}",
                "give it: --lora NAME=DIR",
            )


def load_adapters(runner: StepRunner, named: Named, ledger: Ledger | None = None) -> None:
    """Load adapters into a booted model.

    Raises:
        UsageError: the code has no place for adapters, or a name is taken.
        ModelError: one is malformed, not supported, or does not fit.
    """
    from vcc.engine.runtime.no_adapters import no_adapters
    from vcc.engine.runtime.placed import adapters_in

    adapters = adapters_in(runner)
    if adapters is None:
        raise no_adapters()
    with (ledger or Ledger()).phase("weights"):
        for name, directory in named:
            adapters.load(name, directory)
