"""boot: from a loaded artifact and a checkpoint to a runner, by the loader the artifact names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vcc.cache.errors import IntegrityError, UsageError
from vcc.cache.loaded import Loaded
from vcc.engine.config.artifacts import Loader
from vcc.engine.config.kv_memory import DEFAULT_KV_MEMORY, KvMemory
from vcc.engine.config.modes import GraphMode
from vcc.engine.events import Events
from vcc.engine.models.source import Source, check_weights
from vcc.engine.models.traced_keys import check_layout
from vcc.engine.monitor import Counters, Ledger
from vcc.engine.runtime.batch import StepRunner
from vcc.engine.runtime.graph_stat import GraphStat
from vcc.engine.runtime.settings import AS_MADE, Boot, Play, boot_settings, overruled_lines
from vcc.engine.runtime.wrapper import CaptureGate

if TYPE_CHECKING:
    from vcc.engine.runtime.forward import Forward


class Runner(StepRunner, Protocol):
    """A decoder's runner of any loader."""

    stat: GraphStat
    mode: GraphMode

    @property
    def gate(self) -> CaptureGate:
        """How many graphs there are, and how often one ran."""

    def capture_all(self) -> None:
        """Make every declared graph."""

    def graph_list(self) -> list[dict[str, object]]:
        """The graphs there are, by mode and size."""


@dataclass(frozen=True, slots=True)
class Booted:
    """A decoder's runner, ready for its first step.

    Attributes:
        runner: runs its steps.
        loader: what made it.
        overruled: what was asked for and is something else, a line each with the reason.
    """

    runner: Runner
    loader: Loader
    overruled: tuple[str, ...] = ()

    @property
    def lacking(self) -> bool:
        """Whether the site's store lacks matrix products of it; see `player/gemms.py`."""
        return bool(getattr(self.runner, "lacking", False))

    def account(self, counters: Counters) -> None:
        """Add what the steps did so far: replays, and steps without a graph with the reason."""
        counters.add("replays", self.runner.gate.replays)
        without = self.runner.mode is GraphMode.NONE
        if without and not self.overruled:
            return  # nothing fell back: no graphs were asked for
        for mode, reason, steps in self.runner.stat.summary().reasons:
            if mode == GraphMode.NONE.value:
                counters.fallback("; ".join(self.overruled) if without else reason, steps)


@dataclass(frozen=True, slots=True)
class BootedModule:
    """A module's forward, ready to be called, and the loader that made it."""

    forward: Forward
    loader: Loader

    @property
    def lacking(self) -> bool:
        """As `Booted.lacking`."""
        return bool(getattr(self.forward, "lacking", False))


def _pieces() -> Callable[[Boot], Runner]:
    from vcc.engine.runtime.torch_loader import load_pieces

    return load_pieces


def _eager() -> Callable[[Boot], Runner]:
    from vcc.engine.runtime.eager_loader import load_eager

    return load_eager


def _stock() -> Callable[[Boot], Runner]:
    from vcc.engine.runtime.eager_loader import load_stock

    return load_stock


def _player() -> Callable[[Boot], Runner]:
    from vcc.engine.runtime.player.load import load_player

    return load_player


def _module_pieces() -> Callable[[Boot], Forward]:
    from vcc.engine.runtime.module_loader import load_module_pieces

    return load_module_pieces


def _module_eager() -> Callable[[Boot], Forward]:
    from vcc.engine.runtime.module_loader import load_module_eager

    return load_module_eager


def _module_stock() -> Callable[[Boot], Forward]:
    from vcc.engine.runtime.module_loader import load_module_stock

    return load_module_stock


def _module_player() -> Callable[[Boot], Forward]:
    from vcc.engine.runtime.player.load_forward import load_module_player

    return load_module_player


# Each imports its loader when it is asked for: the player's process has no torch.
LOADERS: Mapping[Loader, Callable[[], Callable[[Boot], Runner]]] = {
    Loader.TORCH: _pieces,
    Loader.EAGER: _eager,
    Loader.IN_PROCESS: _stock,
    Loader.PLAYER: _player,
}

MODULE_LOADERS: Mapping[Loader, Callable[[], Callable[[Boot], Forward]]] = {
    Loader.TORCH: _module_pieces,
    Loader.EAGER: _module_eager,
    Loader.IN_PROCESS: _module_stock,
    Loader.PLAYER: _module_player,
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
    kv_memory: KvMemory = DEFAULT_KV_MEMORY,
    site: Path | None = None,
    unsigned: bool = True,
    play: Play = AS_MADE,
) -> Booted:
    """Make a runner.

    Args:
        loaded: the artifact; every blob is verified before it is used.
        source: where the weights are.
        golden: which piece goldens to check: "off", "one", "all".
        lengths: tokens of the sequences to come, to size the KV cache; empty when not known.
        ledger, counters, events: the accounts, and who is told.
        kv_memory: how much memory the KV cache may take, on a GPU.
        site: root of the store of matrix products.
        unsigned: whether that store may be used: its recordings bear no signature.
        play: graphs that the run asks for, on a GPU.

    Raises:
        IntegrityError: the artifact is damaged or its pieces compute something else here.
        ModelError: the weights are missing or do not fit.
    """
    check_weights(source)
    check_layout(source, loaded.manifest.info)
    loader = _loader(loaded)
    settings = boot_settings(loaded.manifest, lengths, kv_memory)
    if loader is Loader.PLAYER:
        settings = settings.playing(play)
    source = source.for_length(settings.model.max_model_len)
    source = source.with_cache(settings.model.kv_cache_dtype)
    made = Boot(loaded, source, settings, golden, ledger, counters, events, site, unsigned)
    with ledger.phase("import"):
        load = LOADERS[loader]()
    runner = load(made)
    with ledger.phase("pieces"):
        runner.capture_all()
    counters.add("captures", runner.gate.captures)
    overruled = overruled_lines(loaded.manifest)
    for line in (*overruled, *_unbroken(runner, loader)):
        events.note(line)
    return Booted(runner, loader, overruled)


def _unbroken(runner: Runner, loader: Loader) -> Iterator[str]:
    """An eager step that calls no splitting op is recorded as one segment: that is told."""
    if loader is Loader.EAGER and runner.mode.uses(GraphMode.PIECEWISE):
        pieces = [one for one in runner.graph_list() if one["mode"] == GraphMode.PIECEWISE.value]
        if all(one["graphs"] == 1 for one in pieces):
            yield "no splitting op is called, so each piecewise graph is the whole step"


def boot_module(
    loaded: Loaded,
    source: Source,
    *,
    golden: str,
    ledger: Ledger,
    counters: Counters,
    events: Events,
    site: Path | None = None,
    unsigned: bool = True,
) -> BootedModule:
    """Make the forward of a factory's module; arguments and errors as `boot`."""
    if source.is_checkpoint:
        check_weights(source)
        check_layout(source, loaded.manifest.info)
    loader = _loader(loaded)
    if loader not in MODULE_LOADERS:
        raise UsageError(
            f"a module cannot be booted by {loader.value}", "use --compile vcc or none"
        )
    settings = boot_settings(loaded.manifest, ())
    made = Boot(loaded, source, settings, golden, ledger, counters, events, site, unsigned)
    with ledger.phase("import"):
        load = MODULE_LOADERS[loader]()
    return BootedModule(load(made), loader)


def _loader(loaded: Loaded) -> Loader:
    name = loaded.manifest.host_rules.get("loader", "")
    found = next((loader for loader in LOADERS if loader.value == name), None)
    if found is None:
        raise IntegrityError(
            f"no loader called {name[:40]!r}", "the artifact is of another kind", "rebuild it"
        )
    return found
