"""The code key, the plan key and the host rules of an artifact. Free of torch."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vcc.cache.errors import DeviceError
from vcc.cache.key import Key, Pairs
from vcc.cache.manifest import Manifest
from vcc.engine.compile.interface import compiler_of
from vcc.engine.compile.toolchain import Compiler, engine_digest, find_compiler, pass_versions
from vcc.engine.compile.versions import formats, short_version, versions
from vcc.engine.config.artifacts import Content, Loader
from vcc.engine.config.inductor_options import build_options, option_pairs
from vcc.engine.config.keys import key_entries
from vcc.engine.config.modes import Platform
from vcc.engine.models.traced_keys import traced_code, traced_layout
from vcc.engine.op_routes import check_granted
from vcc.engine.op_routes import key_entries as op_entries
from vcc.engine.request import Settled
from vcc.engine.torch_shim.profiles import profile_for
from vcc.engine.user_passes import source_entries

KV_LAYOUT = "2,blocks,block_size,kv_heads,head_dim"
"""Dimensions of a layer's KV cache, which node tables have compiled in."""

CONSTANT = "constant."
"""Entries of the code key that only the build knows: digests of what the trace computed."""


@dataclass(frozen=True, slots=True)
class BuildKeys:
    """What a build here would have in its keys, before anything is traced.

    Attributes:
        code: entries of the code key without constants.
        plan: entries of the plan key; those that only a recording knows are left out.
    """

    code: Mapping[str, str]
    plan: Mapping[str, str]

    @property
    def key(self) -> Key:
        """Both in one: what two builds must share to be the same work."""
        return Key.of({**self.code, **self.plan})

    def same_code(self, manifest: Manifest) -> bool:
        """Whether an artifact has the code that a build here would make."""
        return self.code == known_before(manifest.code_key)

    def same_plan(self, manifest: Manifest) -> bool:
        """Whether an artifact has the plan that a build here would make of the same code."""
        found = dict(manifest.plan_key)
        return all(found.get(label) == value for label, value in self.plan.items())


def build_keys(settled: Settled) -> BuildKeys:
    """The keys of a build of this request on this machine.

    Raises:
        ConfigError: a GPU that no device profile is known for.
        DeviceError: the build needs a C++ compiler and there is none, or a back end was asked for
            that cannot be used.
    """
    check_granted(settled)
    compiles = Content.PIECES in settled.resolved.artifact.holds
    compiler = find_compiler() if compiles and compiler_of(settled).calls_cxx else None
    return BuildKeys(code_entries(settled, compiler), plan_entries(settled))


def keys_here(settled: Settled) -> BuildKeys:
    """As `build_keys`, also where nothing can be compiled: then the compiler is `none`."""
    try:
        return build_keys(settled)
    except DeviceError:
        code = code_entries(settled, Compiler("none", "")) | {"compiler": "none"}
        return BuildKeys(code, plan_entries(settled))


def known_before(code_key: Pairs) -> dict[str, str]:
    """The entries of a code key that are known before anything is traced."""
    return {label: value for label, value in code_key if not label.startswith(CONSTANT)}


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
        **_toolchain(settled),
        **traced_code(request.source),
    }
    if compiler is not None:
        entries["compiler"] = f"{compiler.name} {compiler.version}"
    if request.target.platform is Platform.CUDA:
        entries["target.profile"] = profile_for(request.target, request.profile).digest
        # Compiled into the kernels, unlike on the CPU, where the same code serves every block size.
        entries |= {"kv.block_size": str(settled.model.block_size), "kv.layout": KV_LAYOUT}
    return entries


def _toolchain(settled: Settled) -> dict[str, str]:
    """What makes code of a configuration: versions, formats, passes, options of Inductor."""
    config = settled.resolved.config
    entries = {
        **{f"version.{name}": version for name, version in versions().items()},
        **{f"format.{name}": version for name, version in formats().items()},
        "vcc.source": engine_digest(),
    }
    if {Content.PIECES, Content.CUBINS} & set(settled.resolved.artifact.holds):
        entries |= _code_factors(settled)
        entries |= {f"pass.{name}": text for name, text in pass_versions(config.pass_config)}
        entries |= _user_passes(config.user_passes or ())
        entries |= op_entries(settled)
    return entries


def _code_factors(settled: Settled) -> dict[str, str]:
    """What the compiler of the pieces says of itself; tables of a GPU are made by Inductor."""
    target, options = settled.request.target, dict(settled.resolved.config.inductor_config or ())
    if Content.PIECES in settled.resolved.artifact.holds:
        return compiler_of(settled).factors(target, options)
    return dict(option_pairs(build_options(target, options)))


def _user_passes(names: Sequence[str]) -> dict[str, str]:
    """Sources of the user's passes, and versions, which cover parameters too."""
    if not names:
        return {}
    from vcc.engine.passes.user import load  # runs the user's code, which brings torch

    versions = {f"pass.{one.name}": one.version for one in load(names)}
    return {**source_entries(names), **versions}


def plan_entries(settled: Settled) -> dict[str, str]:
    """What changes the step beyond its code."""
    return {
        **dict(key_entries(settled.model, "plan")),
        **dict(key_entries(settled.resolved.config, "plan")),
        **dict(key_entries(settled.request.parallel, "plan")),
        **traced_layout(settled.request.source),
    }


def host_rules(settled: Settled, loader: Loader) -> dict[str, str]:
    """What must hold where the artifact is loaded; `engine/runtime/host.py` checks them."""
    rules = {"loader": loader.value}
    if loader is Loader.TORCH:
        rules |= {
            "machine": platform.machine(),
            "cpu_level": settled.request.target.arch,
            "torch": short_version(versions()["torch"]),
        }
    return rules


def pairs(entries: Mapping[str, str]) -> Pairs:
    """Entries as the sorted pairs of a key."""
    return tuple(sorted(entries.items()))
