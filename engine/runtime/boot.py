"""boot: from a loaded artifact and a checkpoint to a runner, by the loader the artifact names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vcc.cache.errors import IntegrityError, UsageError
from vcc.cache.loaded import Loaded
from vcc.engine.config.artifacts import Loader
from vcc.engine.config.modes import GraphMode
from vcc.engine.events import Events
from vcc.engine.models.source import Source, check_weights
from vcc.engine.monitor import Counters, Ledger
from vcc.engine.runtime.eager_loader import load_eager, load_stock
from vcc.engine.runtime.forward import Forward
from vcc.engine.runtime.module_loader import load_module_eager, load_module_pieces
from vcc.engine.runtime.settings import Boot, boot_settings
from vcc.engine.runtime.step import ModelRunner
from vcc.engine.runtime.torch_loader import load_pieces


@dataclass(frozen=True, slots=True)
class Booted:
    """A decoder's runner, ready for its first step, and the loader that made it."""

    runner: ModelRunner
    loader: Loader

    def account(self, counters: Counters) -> None:
        """Add what the steps did so far: replays, and steps without a graph with the reason."""
        counters.add("replays", self.runner.gate.replays)
        if self.runner.mode is GraphMode.NONE:
            return  # nothing fell back: no graphs were asked for
        for mode, reason, steps in self.runner.stat.summary().reasons:
            if mode == GraphMode.NONE.value:
                counters.fallback(reason, steps)


@dataclass(frozen=True, slots=True)
class BootedModule:
    """A module's forward, ready to be called, and the loader that made it."""

    forward: Forward
    loader: Loader


LOADERS: Mapping[Loader, Callable[[Boot], ModelRunner]] = {
    Loader.TORCH: load_pieces,
    Loader.EAGER: load_eager,
    Loader.IN_PROCESS: load_stock,
}

MODULE_LOADERS: Mapping[Loader, Callable[[Boot], Forward]] = {
    Loader.TORCH: load_module_pieces,
    Loader.EAGER: load_module_eager,
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
    check_weights(source)
    loader = _loader(loaded)
    settings = boot_settings(loaded.manifest, lengths)
    runner = LOADERS[loader](Boot(loaded, source, settings, golden, ledger, counters, events))
    with ledger.phase("pieces"):
        runner.capture_all()
    counters.add("captures", runner.gate.captures)
    return Booted(runner, loader)


def boot_module(
    loaded: Loaded,
    source: Source,
    *,
    golden: str,
    ledger: Ledger,
    counters: Counters,
    events: Events,
) -> BootedModule:
    """Make the forward of a factory's module; arguments and errors as `boot`."""
    loader = _loader(loaded)
    if loader not in MODULE_LOADERS:
        raise UsageError(
            f"a module cannot be booted by {loader.value}", "use --compile vcc or none"
        )
    settings = boot_settings(loaded.manifest, ())
    made = Boot(loaded, source, settings, golden, ledger, counters, events)
    return BootedModule(MODULE_LOADERS[loader](made), loader)


def _loader(loaded: Loaded) -> Loader:
    name = loaded.manifest.host_rules.get("loader", "")
    found = next((loader for loader in LOADERS if loader.value == name), None)
    if found is None:
        raise IntegrityError(
            f"no loader called {name[:40]!r}", "the artifact is of another kind", "rebuild it"
        )
    return found
