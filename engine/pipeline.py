"""build: from a request to a stored artifact, one stage after the other."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace

from vcc.cache.care.prune import keep_under
from vcc.cache.errors import (
    DeviceError,
    IntegrityError,
    LockTimeout,
    StorageError,
    VccError,
)
from vcc.cache.gate import Untrusted
from vcc.cache.key import Key
from vcc.cache.loaded import Loaded
from vcc.cache.manifest import Manifest
from vcc.cache.request import Entry
from vcc.cache.settings import read_settings
from vcc.cache.single_flight import Holder, single_flight
from vcc.cache.store import Store
from vcc.engine.compile.artifact import Made, manifest_of, replan
from vcc.engine.compile.building import Build
from vcc.engine.compile.keys import BuildKeys, build_keys, pairs
from vcc.engine.compile.observed import observed
from vcc.engine.compile.scratch import sweep
from vcc.engine.config.artifacts import Content as Holds
from vcc.engine.config.environment import use_build_folder
from vcc.engine.config.modes import Platform
from vcc.engine.events import Events
from vcc.engine.monitor import Counters
from vcc.engine.refusals import check_keep, check_request
from vcc.engine.request import BuildRequest, Built, Settled, look_up, request_pairs, settle
from vcc.engine.torch_shim.quiet import libraries_may_warn


def build(request: BuildRequest, store: Store, events: Events, counters: Counters) -> Built:
    """Build what a request asks for, unless the store has it.

    A store that cannot be written costs the storing, not the build: the artifact is returned in
    memory with the reason.

    Raises:
        ConfigError, ModelError: the request cannot be built.
        DeviceError: no compiler, no GPU to record on, or a dtype or CPU level without kernels.
        CompileError, GraphError: a stage failed.
    """
    sweep()
    settled = settle(request)
    check_request(settled)
    holds = settled.resolved.artifact.holds
    keys = build_keys(settled)
    compiles = bool({Holds.PIECES, Holds.CUBINS} & set(holds))
    build = Build(settled, store, events, counters, keys.code)
    if settled.resolved.artifact.refusal:
        return _in_process(build)
    title = f"compiling {request.source.name}"
    try:
        with single_flight(store.root, keys.key.digest, title, waiting=_Waiting(events)):
            return _reused(build, keys) or _fresh(build, compiles=compiles)
    except LockTimeout as error:
        events.note(f"{error}; built here without waiting longer")
        return _fresh(build, compiles=compiles)


class _Waiting:
    """Says once, and then every half minute, whom the build waits for."""

    def __init__(self, events: Events) -> None:
        self._events, self._next = events, 0.0

    def __call__(self, holder: Holder | None, waited: float) -> None:
        if waited >= self._next:
            self._events.note(f"waiting for {holder or 'another process'}, which builds the same")
            self._next = waited + 30.0


def _reused(build: Build, keys: BuildKeys) -> Built | None:
    """The stored artifact of this code key, under the plan that is asked for."""
    base, _ = look_up(build.settled)
    try:
        for entry in _candidates(build, base):
            built = _reuse(build, keys, entry)
            if built is not None:
                build.counters.add("hits")
                if build.settled.request.keep is not None:
                    build.events.note("nothing to keep: the code was there already")
                return built
    except StorageError as error:
        if build.store.strict:
            raise
        build.events.note(f"the store cannot be searched: {error}")
    return None


def _candidates(build: Build, base: Key) -> Iterator[Entry]:
    """What may have the code: all of the stores, then what a remote has of this very request.

    Those of this very request come first: another one with the same code would be stored once more.
    """
    wanted = pairs(request_pairs(build.settled)[0])
    found = replace(build.store, remote=None).find(base)
    here = sorted(found, key=lambda entry: entry.request != wanted)
    yield from here
    if build.store.remote is None:
        return
    asking = replace(build.store, remote=build.store.remote.telling(build.events.note))
    offered = asking.find(base, accept=lambda entry: entry.request == wanted)
    yield from (entry for entry in offered if entry not in here)


def _reuse(build: Build, keys: BuildKeys, entry: Entry) -> Built | None:
    try:
        loaded = build.store.load(entry)
        if not keys.same_code(loaded.manifest):
            return None
        if build.settled.resolved.artifact.needs_gpu and not _same_request(loaded, build.settled):
            return None  # recorded graphs are of the sizes that were declared
        blobs = loaded.read_all()
    except Untrusted as error:
        build.events.note(str(error))
        return None
    except IntegrityError as error:
        build.store.quarantine(entry, error)
        build.events.note(f"artifact {entry.artifact[:12]} is damaged and rebuilt: {error}")
        return None
    except VccError as error:
        if build.store.strict and isinstance(error, StorageError):
            raise
        build.events.note(f"artifact {entry.artifact[:12]} cannot be reused: {error}")
        return None
    if _same_request(loaded, build.settled) and keys.same_plan(loaded.manifest):
        return Built(loaded, entry, reused=True)
    return _publish_again(build, loaded, blobs)


def _same_request(loaded: Loaded, settled: Settled) -> bool:
    return loaded.manifest.request == pairs(request_pairs(settled)[0])


def _publish_again(build: Build, loaded: Loaded, blobs: Mapping[str, bytes]) -> Built:
    """The same code under another plan: a new manifest over the blobs that are there."""
    manifest = replan(loaded.manifest, build.settled)
    return _published(build, manifest, blobs, reused=True)


def _fresh(build: Build, *, compiles: bool) -> Built:
    build.counters.add("misses")
    if compiles:
        _check_assertions(build.settled)
        check_keep(build.settled.request.keep)
    with libraries_may_warn():
        made = observed(build, _made) if compiles else _nothing(build)
    manifest = manifest_of(build.settled, build.code, made, build.stages)
    return _published(build, manifest, made.blobs)


def _check_assertions(settled: Settled) -> None:
    """Torch's compiler has assertions whose tests change what it does next."""
    if sys.flags.optimize:
        raise DeviceError(
            "cannot compile in a process that runs without assertions",
            "under `python -O` torch's compiler makes wrong code",
            f"vcc compile {settled.request.source.name} starts itself with them; finished "
            "artifacts run under -O",
        )


def _made(build: Build) -> Made:
    """Compile for the request's platform; only what that platform needs is imported."""
    if build.settled.resolved.artifact.needs_gpu:
        from vcc.engine.compile.recorded import record_for_gpu

        return record_for_gpu(build)
    if build.settled.request.target.platform is Platform.CUDA:
        from vcc.engine.compile.gpu import compile_for_gpu

        return compile_for_gpu(build)
    from vcc.engine.compile.scratch import scratch

    with scratch() as folder:
        # Before the import, at which torch's compiler makes the folder of its cache.
        use_build_folder(folder, build.settled.request.target.arch)
        from vcc.engine.compile.cpu import compile_for_cpu

        return compile_for_cpu(build)


def _nothing(build: Build) -> Made:
    """No code; a factory's module is tried all the same."""
    factory = build.settled.request.source.factory
    if factory is not None:
        from vcc.engine.compile.tried import try_module

        with build.stage("try"):
            try_module(build, factory)
    return Made()


def _in_process(build: Build) -> Built:
    """For a mode whose code cannot be stored: bindings and config in memory."""
    build.counters.add("misses")
    manifest = manifest_of(build.settled, build.code, _nothing(build), build.stages)
    return Built(Loaded.of(manifest, {}), None, trouble=build.settled.resolved.artifact.refusal)


def _published(
    build: Build, manifest: Manifest, blobs: Mapping[str, bytes], *, reused: bool = False
) -> Built:
    with build.stage("publish"):
        try:
            entry = build.store.publish(manifest, blobs)
            kept = keep_under(build.store.root, read_settings().max_size, entry.artifact)
            if kept:
                build.events.note(kept)
            loaded = _read_back(build, entry, manifest, blobs)
            return Built(loaded, entry, reused, planned=reused)
        except VccError as error:
            if build.store.strict and isinstance(error, StorageError):
                raise
            return Built(Loaded.of(manifest, blobs), None, reused, str(error))


def _read_back(
    build: Build, entry: Entry, manifest: Manifest, blobs: Mapping[str, bytes]
) -> Loaded:
    """What was stored as a later run will see it; in memory where that run needs a signature."""
    try:
        return build.store.load(entry)
    except Untrusted as error:
        build.events.note(f"artifact {entry.artifact[:12]} is stored, but not used yet: {error}")
        return Loaded.of(manifest, blobs)
