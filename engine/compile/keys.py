"""The code key, the plan key and the host rules of an artifact."""

from __future__ import annotations

import platform
from collections.abc import Mapping

from vcc.cache.key import Pairs
from vcc.engine.compile.toolchain import Compiler, engine_digest, versions
from vcc.engine.config.artifacts import Loader
from vcc.engine.config.environment import read_environment
from vcc.engine.config.keys import key_entries
from vcc.engine.config.modes import Platform
from vcc.engine.request import Settled
from vcc.engine.torch_shim.profiles import profile_for

KV_LAYOUT = "2,blocks,block_size,kv_heads,head_dim"
"""Dimensions of a layer's KV cache, which node tables have compiled in."""


def code_entries(settled: Settled, compiler: Compiler | None) -> dict[str, str]:
    """Everything that changes compiled code and is known before tracing.

    Args:
        settled: the request.
        compiler: the C++ compiler; None where it compiles nothing.

    Raises:
        ConfigError: a GPU that no device profile is known for.
    """
    request = settled.request
    entries = {
        "model.digest": request.source.model_key().digest.hex,
        "target": str(request.target),
        **dict(key_entries(settled.model, "code")),
        **dict(key_entries(settled.resolved.config, "code")),
        **dict(key_entries(request.parallel, "code")),
        **{f"version.{name}": version for name, version in versions().items()},
        "vcc.source": engine_digest(),
    }
    if compiler is not None:
        entries["compiler"] = f"{compiler.name} {compiler.version}"
        entries |= {f"env.{name}": value for name, value in read_environment().key}
    if request.target.platform is Platform.CUDA:
        entries["target.profile"] = profile_for(request.target, request.profile).digest
        # Compiled into the kernels, unlike on the CPU, where the same code serves every block size.
        entries |= {"kv.block_size": str(settled.model.block_size), "kv.layout": KV_LAYOUT}
    return entries


def plan_entries(settled: Settled) -> dict[str, str]:
    """What changes the step beyond its code."""
    return {
        **dict(key_entries(settled.model, "plan")),
        **dict(key_entries(settled.resolved.config, "plan")),
        **dict(key_entries(settled.request.parallel, "plan")),
    }


def host_rules(settled: Settled, loader: Loader) -> dict[str, str]:
    """What must hold where the artifact is loaded; `engine/runtime/host.py` checks them."""
    rules = {"loader": loader.value}
    if loader is Loader.TORCH:
        rules |= {
            "machine": platform.machine(),
            "cpu_level": settled.request.target.arch,
            "torch": ".".join(versions()["torch"].split(".")[:2]),
        }
    return rules


def pairs(entries: Mapping[str, str]) -> Pairs:
    """Entries as the sorted pairs of a key."""
    return tuple(sorted(entries.items()))
