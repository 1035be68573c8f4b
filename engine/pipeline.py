"""build: from a request to a stored artifact, one stage after the other."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vcc.cache.errors import ConfigError, IntegrityError, LockTimeout, StorageError, VccError
from vcc.cache.key import Key
from vcc.cache.loaded import Loaded
from vcc.cache.request import Entry
from vcc.cache.single_flight import Holder, single_flight
from vcc.cache.store import Store
from vcc.engine.compile.keys import code_entries, pairs, plan_entries
from vcc.engine.compile.toolchain import compiler_options, find_compiler
from vcc.engine.config.artifacts import Content as Holds
from vcc.engine.config.environment import read_environment, use_build_folder
from vcc.engine.config.modes import Backend, CompileMode
from vcc.engine.events import Events
from vcc.engine.monitor import Counters
from vcc.engine.request import BuildRequest, Built, Settled, look_up, request_pairs, settle

if TYPE_CHECKING:
    from vcc.engine.compile.artifact import Content
    from vcc.engine.types import CompiledPiece, Passed, Pieces, Traced


@dataclass(frozen=True, slots=True)
class Build:
    """A running build: what is built, where to, and who is told."""

    settled: Settled
    store: Store
    events: Events
    counters: Counters
    code: Mapping[str, str]
    stages: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str, total: int = 0) -> Iterator[None]:
        """Time a stage and report it."""
        start = time.perf_counter()
        self.events.stage_started(name, total)
        yield
        self.stages[name] = time.perf_counter() - start
        self.events.stage_finished(name, self.stages[name])


def build(request: BuildRequest, store: Store, events: Events, counters: Counters) -> Built:
    """Build what a request asks for, unless the store has it.

    A store that cannot be written costs the storing, not the build: the artifact is returned in
    memory with the reason.

    Raises:
        ConfigError, ModelError: the request cannot be built.
        DeviceError: no compiler, or a dtype or CPU level without kernels.
        CompileError: a stage failed.
    """
    settled = settle(request)
    _check_supported(settled)
    compiles = Holds.PIECES in settled.resolved.artifact.holds
    code = code_entries(settled, find_compiler() if compiles else None)
    build = Build(settled, store, events, counters, code)
    if settled.resolved.artifact.refusal:
        return _in_process(build)
    key = Key.of({**code, **plan_entries(settled)})
    title = f"compiling {request.source.name}"
    try:
        with single_flight(store.root, key.digest, title, waiting=_Waiting(events)):
            return _reused(build) or _fresh(build, compiles=compiles)
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


def _check_supported(settled: Settled) -> None:
    config = settled.resolved.config
    if config.backend is Backend.EAGER and config.mode is not CompileMode.NO_COMPILATION:
        raise ConfigError(
            'backend "eager" is not supported yet',
            "pieces are compiled by Inductor in this version",
            "leave backend unset, or use --compile none to run without compiled pieces",
        )
    for name in ("compile_sizes", "compile_ranges"):
        if getattr(config, name):
            raise ConfigError(
                f"{name} is not supported yet",
                "this version makes one piece of code for the whole range of sizes",
                f"leave {name} unset: all sizes are served",
            )


def _reused(build: Build) -> Built | None:
    """The stored artifact of this code key, under the plan that is asked for."""
    base, _ = look_up(build.settled)
    try:
        for entry in build.store.find(base):
            built = _reuse(build, entry)
            if built is not None:
                build.counters.add("hits")
                if build.settled.request.keep is not None:
                    build.events.note("nothing to keep: the code was there already")
                return built
    except StorageError as error:
        build.events.note(f"the store cannot be searched: {error}")
    return None


def _reuse(build: Build, entry: Entry) -> Built | None:
    try:
        loaded = build.store.load(entry)
        if not _same_code(loaded, build.code):
            return None
        blobs = loaded.read_all()
    except IntegrityError as error:
        build.store.quarantine(entry, error)
        build.events.note(f"artifact {entry.artifact[:12]} is damaged and rebuilt: {error}")
        return None
    except VccError as error:
        build.events.note(f"artifact {entry.artifact[:12]} cannot be reused: {error}")
        return None
    if _same_request(loaded, build.settled):
        return Built(loaded, entry, reused=True)
    return _publish_again(build, loaded, blobs)


def _same_code(loaded: Loaded, code: Mapping[str, str]) -> bool:
    found = {k: v for k, v in loaded.manifest.code_key if not k.startswith("constant.")}
    return found == dict(code)


def _same_request(loaded: Loaded, settled: Settled) -> bool:
    return loaded.manifest.request == pairs(request_pairs(settled)[0])


def _publish_again(build: Build, loaded: Loaded, blobs: Mapping[str, bytes]) -> Built:
    """The same code under another plan: a new manifest over the blobs that are there."""
    from vcc.engine.compile.artifact import replan

    manifest = replan(loaded.manifest, build.settled)
    return _published(build, manifest, blobs, reused=True)


def _fresh(build: Build, *, compiles: bool) -> Built:
    from vcc.engine.compile.artifact import Content, blobs_of, manifest_of

    build.counters.add("misses")
    content = _compile(build) if compiles else Content()
    manifest = manifest_of(build.settled, build.code, content)
    return _published(build, manifest, blobs_of(content))


def _in_process(build: Build) -> Built:
    """For a mode whose code cannot be stored: bindings and config in memory."""
    from vcc.engine.compile.artifact import Content, manifest_of

    build.counters.add("misses")
    manifest = manifest_of(build.settled, build.code, Content())
    return Built(Loaded.of(manifest, {}), None, trouble=build.settled.resolved.artifact.refusal)


def _published(
    build: Build, manifest: object, blobs: Mapping[str, bytes], *, reused: bool = False
) -> Built:
    from vcc.cache.manifest import Manifest

    if not isinstance(manifest, Manifest):
        raise TypeError(type(manifest).__name__)
    with build.stage("publish"):
        try:
            entry = build.store.publish(manifest, blobs)
            return Built(build.store.load(entry), entry, reused)
        except VccError as error:
            return Built(Loaded.of(manifest, blobs), None, reused, str(error))


def _compile(build: Build) -> Content:
    """Trace, passes, partition, compile."""
    from vcc.engine.compile.artifact import Content
    from vcc.engine.compile.scratch import scratch

    with scratch() as folder:
        use_build_folder(folder, build.settled.request.target.arch)
        passed = _passed(build)
        pieces = _pieces(build, passed)
        compiled = _compiled(build, pieces)
    return Content(pieces, compiled, passed, passed.traced.constants, build.stages)


def _passed(build: Build) -> Passed:
    from vcc.engine.compile.dump import Dump
    from vcc.engine.passes.apply import apply, enabled

    dump = Dump(build.settled.request.keep)
    with build.stage("trace"):
        traced = _traced(build)
        build.counters.add("traces")
        dump.graph("traced", traced)
    with build.stage("passes"):
        passes = enabled(build.settled.resolved.config.pass_config)
        return apply(traced, passes, dump.graph)


def _traced(build: Build) -> Traced:
    from vcc.engine.compile.source import trace_request
    from vcc.engine.trace.trace import trace

    return trace(trace_request(build.settled))


def _pieces(build: Build, passed: Passed) -> Pieces:
    from vcc.engine.compile.dump import Dump
    from vcc.engine.partition.split import split
    from vcc.engine.passes.apply import enabled, version_pairs
    from vcc.engine.torch_shim.inductor import option_pairs

    config = build.settled.resolved.config
    with build.stage("partition"):
        passes = version_pairs(enabled(config.pass_config))
        options = (*passes, *option_pairs(_options(build)), *_toolchain(build))
        pieces = split(passed.traced, _splitting_ops(build, passed), options)
        build.counters.add("pieces", sum(pieces.calls.values()))
        build.counters.add("unique_pieces", len(pieces.unique))
        Dump(build.settled.request.keep).pieces(pieces)
        return pieces


def _splitting_ops(build: Build, passed: Passed) -> tuple[str, ...]:
    """The resolved splitting ops; those that a user named and the model lacks are told."""
    from vcc.engine.partition.ops import absent

    ops = build.settled.resolved.config.splitting_ops or ()
    missing = absent(passed.traced.graph.graph, ops)
    if build.settled.request.compilation.splitting_ops is not None:
        for name in missing:
            build.events.note(f"splitting op {name} is not in this model: nothing is cut there")
    return ops


def _toolchain(build: Build) -> tuple[tuple[str, str], ...]:
    wanted = ("compiler", "target", "version.torch", "version.triton")
    return tuple((name, build.code[name]) for name in wanted)


def _options(build: Build) -> dict[str, object]:
    from vcc.engine.torch_shim.inductor import merged_options

    user = dict(build.settled.resolved.config.inductor_config or ())
    options = {**compiler_options(build.code["compiler"]), **user}
    return merged_options(build.settled.request.target.arch, options)


def _compiled(build: Build, pieces: Pieces) -> tuple[CompiledPiece, ...]:
    from vcc.engine.compile.pool import compile_pieces, default_jobs
    from vcc.engine.torch_shim.preload import preload_inductor

    asked = build.settled.request.jobs or read_environment().workers
    with build.stage("compile", len(pieces.unique)):
        preload_inductor(build.settled.request.target.arch)
        compiled = compile_pieces(
            pieces.unique, _options(build), asked or default_jobs(pieces.unique), build.events
        )
        build.counters.add("compiles", len(compiled))
        return compiled
