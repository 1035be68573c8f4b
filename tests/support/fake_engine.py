"""A build side and a boot without a compiler: the real store, the fake step runner.

`install` puts them in place of `vcc.engine.pipeline` and `vcc.engine.runtime.boot`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import ModuleType

import pytest

from support.fake_runner import FakeRunner, limits
from vcc.cache.errors import StorageError
from vcc.cache.loaded import Loaded
from vcc.cache.manifest import Manifest
from vcc.engine.config.artifacts import Loader
from vcc.engine.request import Built, request_pairs, settle

BLOBS = {"program": b"{}", "piece/0.so": b"code"}


@dataclass
class FakeEngine:
    """What was built and booted; `build_error` and `boot_error` are raised when set.

    `runner` is what boots.
    """

    vocab: int = 2048
    builds: list = field(default_factory=list)
    boots: list = field(default_factory=list)
    build_error: BaseException | None = None
    boot_error: BaseException | None = None
    runner: type[FakeRunner] = FakeRunner

    def build(self, request, store, events, counters):
        self.builds.append(request)
        if self.build_error:
            raise self.build_error
        events.stage_started("compile", 1)
        events.progress("piece 0", "running")
        events.progress("piece 0", "done")
        events.stage_finished("compile", 0.25)
        counters.add("misses")
        counters.add("traces")
        counters.add("compiles")
        counters.add("unique_pieces")
        manifest = manifest_of(request)
        try:
            entry, trouble = store.publish(manifest, BLOBS), ""
        except StorageError as error:
            if store.strict:  # as the pipeline does
                raise
            entry, trouble = None, str(error)
        return Built(Loaded.of(manifest, BLOBS), entry, trouble=trouble)

    def boot(self, loaded, source, *, golden, lengths, ledger, counters, events, **more):
        for name in loaded.manifest.blobs:
            loaded.read(name)
        if self.boot_error:
            raise self.boot_error
        self.boots.append((golden, tuple(lengths)))
        runner = self.runner(
            limits(vocab=self.vocab, max_model_len=512, num_blocks=512, max_blocks_per_seq=128)
        )
        return Booted(runner)


@dataclass
class Booted:
    """As much of a booted artifact as a session uses; it never has a graph."""

    runner: FakeRunner
    lacking: bool = False

    def account(self, counters):
        counters.fallback("not full: too many tokens", len(self.runner.batches))


@dataclass
class BootedModule:
    """A module that doubles its inputs."""

    loader, lacking = Loader.TORCH, False

    def forward(self, inputs):
        return {f"output_{index}": value * 2 for index, value in enumerate(inputs.values())}


def manifest_of(request) -> Manifest:
    """The manifest of a request, with made-up keys."""
    pairs, open_fields = request_pairs(settle(request))
    return Manifest(
        request=tuple(sorted(pairs.items())),
        open_fields=open_fields,
        code_key=(("torch", "2.13"),),
        host_rules={"loader": "fake"},
        title=f"{request.source.name} for tests",
    )


def boot_module(loaded, source, *, golden, ledger, counters, events, site, unsigned):
    """Boots any artifact."""
    return BootedModule()


def install(patch: pytest.MonkeyPatch) -> FakeEngine:
    """Put a fake build and boot in place until the test ends."""
    engine = FakeEngine()
    for name, function in (("pipeline", engine.build), ("runtime.boot", engine.boot)):
        module = ModuleType(f"vcc.engine.{name}")
        setattr(module, name.rpartition(".")[2].replace("pipeline", "build"), function)
        module.boot_module = boot_module
        patch.setitem(sys.modules, module.__name__, module)
    return engine
