"""Code for a GPU: node table and cubins, built in a process of its own. Free of torch here."""

from __future__ import annotations

from vcc.cache.errors import ConfigError
from vcc.engine.compile.artifact import Made
from vcc.engine.compile.building import Build
from vcc.engine.graphs.planner.content import GpuContent
from vcc.engine.graphs.planner.process import plan_in_child
from vcc.engine.graphs.table.layout import VERSION
from vcc.engine.request import Settled
from vcc.engine.runtime.host import TABLES
from vcc.engine.torch_shim.profiles import DeviceProfile, profile_for


def compile_for_gpu(build: Build) -> Made:
    """Run the stages and return the artifact's content.

    Raises:
        ConfigError: no profile for the target.
        CompileError: a stage failed, or the model holds what a node table cannot express.
        DeviceError: this build of torch cannot compile for a GPU.
    """
    profile = device_profile(build.settled)
    content = plan_in_child(build.settled, profile, build.events)
    build.stages.update(content.stages)
    for name, count in content.counters.items():
        build.counters.add(name, count)
    return Made(
        content.blobs(), info(content, profile), rules(content, profile), reads=content.reads
    )


def device_profile(settled: Settled) -> DeviceProfile:
    """The device that a request compiles for.

    Raises:
        ConfigError: no profile for the target, or a forward of more sizes than a table has.
    """
    _check_sizes(settled)
    return profile_for(settled.request.target, settled.request.profile)


MOST_SIZES = 2
"""Sizes of a node table that a step says; see `PLAIN` of planner/step.py."""


def _check_sizes(settled: Settled) -> None:
    source = settled.request.source
    names = dict.fromkeys(
        dim.axis or f"dimension {index} of {shape.name}"
        for shape in source.shapes
        for index, dim in enumerate(shape.dims)
        if dim.dynamic
    )
    if source.kind != "decoder" and len(names) > MOST_SIZES:
        raise ConfigError(
            f"{source.name} cannot be compiled for {settled.request.target}",
            f"its inputs vary in {len(names)} sizes ({', '.join(names)}), a node table in two",
            "fix the others: --shape NAME=4x128",
        )


def info(content: GpuContent, profile: DeviceProfile) -> dict[str, object]:
    """What the manifest says of a GPU build."""
    return {**content.info, "device": profile.name, "toolkit": content.toolkit}


def rules(content: GpuContent, profile: DeviceProfile) -> dict[str, str]:
    """What must hold where a GPU artifact is loaded."""
    return {"arch": profile.target, "driver": str(content.driver), TABLES: str(VERSION)}
