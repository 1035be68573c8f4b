"""Node tables recorded from kernels that run: eager and stock modes, on the GPU itself."""

from __future__ import annotations

from vcc.engine.compile.artifact import Made
from vcc.engine.compile.building import Build
from vcc.engine.graphs.recorder.process import record_model
from vcc.engine.graphs.table.layout import VERSION
from vcc.engine.runtime.host import TABLES
from vcc.engine.torch_shim.profiles import profile_for


def record_for_gpu(build: Build) -> Made:
    """Capture the full graphs that a request declares, prove them, and return the content.

    Raises:
        DeviceError: no GPU, another one than the target's, or no CUPTI.
        GraphError: a graph that cannot be stored, named by node, kernel and offset.
        ConfigError, ModelError: the model cannot be recorded.
    """
    request = build.settled.request
    profile = profile_for(request.target, request.profile)
    with build.stage("record"):
        tables = record_model(build.settled, profile, build.events)
    build.counters.add("captures", len(tables.info["recorded"]))
    device = tables.info["device"]
    rules = {"arch": profile.target, "driver": str(device["driver"]), TABLES: str(VERSION)}
    # Kernels were chosen by libraries for this very GPU; the sizes are in the plan key already.
    plan = {"recorded.device": device["name"], "recorded.cuda": str(tables.info["cuda"])}
    return Made(tables.blobs, {**tables.info, "device": device["name"]}, rules, plan)
