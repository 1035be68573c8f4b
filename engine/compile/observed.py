"""A build with an eye on the environment: what its compilers read is recorded and told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from vcc.cache.errors import DeviceError
from vcc.engine.compile.artifact import Made
from vcc.engine.compile.building import Build
from vcc.engine.compile.versions import has_torch
from vcc.engine.config.compiler_variables import unlisted
from vcc.engine.config.environment import (
    drop_compiler_variables,
    inductor_names,
    recorded_reads,
    set_variables,
)
from vcc.engine.config.reads import Reads

EARLY = "torch was imported before the build began: what it read then is not listed"


def observed(build: Build, make: Callable[[Build], Made]) -> Made:
    """Compile, and add to the manifest's `info` which variables were read.

    `environment.read` are the names that anybody but vcc read, `environment.unlisted` those that
    torch, Triton or the model's own modules read and that no table knows, with who read them. Of
    the latter each that is set is told: it may have changed the code, and no key has it.

    Args:
        build: the running build; its events hear what is dropped and what is unlisted.
        make: compiles.

    Raises:
        DeviceError: torch is not installed.
    """
    if not has_torch():
        raise DeviceError(
            "nothing can be built here",
            "torch is not installed",
            "pip install torch, or build elsewhere and share the store",
        )
    early = "torch" in sys.modules
    _tell_dropped(build, drop_compiler_variables())
    with recorded_reads() as reads:
        made = make(build)
    reads.merge(made.reads)
    names = unlisted(reads, _own_packages(build), inductor_names())
    _tell_unlisted(build, reads, set_variables(names))
    who = reads.as_dict()
    told: dict[str, object] = {"read": list(who), "unlisted": {name: who[name] for name in names}}
    if early:
        told["note"] = EARLY
    return replace(made, info={**made.info, "environment": told})


def _own_packages(build: Build) -> Iterable[str]:
    """The top-level packages of a factory's own sources."""
    return {module.partition(".")[0] for module, _ in build.settled.request.source.code}


def _tell_dropped(build: Build, names: Sequence[str]) -> None:
    if names:
        build.events.note(
            f"{', '.join(names)} {_are(names)} set and kept from the compilers, because no key has "
            f"{_them(names)}: options of Inductor go into inductor_config"
        )


def _tell_unlisted(build: Build, reads: Reads, names: Sequence[str]) -> None:
    who = reads.as_dict()
    for name in names:
        build.events.note(
            f"{name} is set and was read by {' and '.join(who[name])}: no key has it, so an "
            "artifact that was built with another value looks the same"
        )


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _them(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"
