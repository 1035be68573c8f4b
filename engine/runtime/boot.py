"""boot: from a loaded artifact and a checkpoint to a runner, by the loader the artifact names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vcc.cache.errors import IntegrityError, ModelError
from vcc.cache.loaded import Loaded
from vcc.engine.config.artifacts import Loader
from vcc.engine.events import Events
from vcc.engine.models.source import Source
from vcc.engine.monitor import Counters, Ledger
from vcc.engine.runtime.eager_loader import load_eager, load_stock
from vcc.engine.runtime.settings import Boot, boot_settings
from vcc.engine.runtime.step import ModelRunner
from vcc.engine.runtime.torch_loader import load_pieces


@dataclass(frozen=True, slots=True)
class Booted:
    """A runner that is ready for its first step, and the loader that made it."""

    runner: ModelRunner
    loader: Loader


LOADERS: Mapping[str, tuple[Loader, Callable[[Boot], ModelRunner]]] = {
    Loader.TORCH.value: (Loader.TORCH, load_pieces),
    Loader.EAGER.value: (Loader.EAGER, load_eager),
    Loader.IN_PROCESS.value: (Loader.IN_PROCESS, load_stock),
}


def boot(
    loaded: Loaded,
    source: Source,
    *,
    golden: str,
    lengths: Sequence[int],
    ledger: Ledger,
    counters: Counters,
    events: Events,
) -> Booted:
    """Make a runner.

    Args:
        loaded: the artifact; every blob is verified before it is used.
        source: where the weights are.
        golden: which piece goldens to check: "off", "one", "all".
        lengths: tokens of the sequences to come, to size the KV cache; empty when not known.
        ledger, counters, events: the accounts, and who is told.

    Raises:
        IntegrityError: the artifact is damaged or its pieces compute something else here.
        ModelError: the weights are missing or do not fit.
    """
    name = loaded.manifest.host_rules.get("loader", "")
    if name not in LOADERS:
        raise IntegrityError(
            f"no loader called {name[:40]!r}", "the artifact is of another kind", "rebuild it"
        )
    if not source.has_weights:
        raise ModelError(
            f"{source.name} has no weights here",
            "an artifact holds code, never weights",
            "give a checkpoint: a directory with *.safetensors, or --weights PATH",
        )
    loader, load = LOADERS[name]
    settings = boot_settings(loaded.manifest, lengths)
    runner = load(Boot(loaded, source, settings, golden, ledger, counters, events))
    with ledger.phase("pieces"):
        runner.capture_all()
    counters.add("captures", runner.gate.captures)
    return Booted(runner, loader)
