"""The command that would make a missing artifact: the same model, the same options. No torch."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from vcc.cache.settings import cache_root
from vcc.engine.compile.versions import has_torch
from vcc.engine.config.modes import Platform
from vcc.engine.config.plain import canonical, plain
from vcc.engine.config.spellings import COMPILE_WORDS
from vcc.engine.config.types import CompilationConfig
from vcc.engine.request import BuildRequest, Settled
from vcc.engine.runtime.host import NotHere, version_text


def how_to_build(settled: Settled, root: Path, refused: NotHere | None = None) -> str:
    """What to do when no artifact answers, in one line.

    Args:
        settled: the request of the run.
        root: the store that was asked.
        refused: why what is there cannot be used on this machine; None when there is nothing.
    """
    rule = settled.resolved.artifact
    if rule.refusal:
        return rule.hint
    command = compile_command(settled.request, root, _target(settled.request, refused))
    if refused is not None and refused.rule == "driver":
        needed = version_text(int(refused.wanted))
        return (
            f"install a driver of CUDA {needed} or later (this one is of CUDA {refused.found}), "
            f"or build it with an older toolkit: {command}"
        )
    if refused is not None and refused.rule == "cpu_level" and not refused.found:
        return f"mount /proc; without it, run without compiled pieces: {command} --compile none"
    if refused is not None and refused.rule == "torch":
        install = f"pip install 'torch=={refused.wanted}.*'"
        return f"{install}, or build it for this one: {command}" if has_torch() else install
    return f"build it: {command}"


def compile_command(request: BuildRequest, root: Path, target: str = "") -> str:
    """`vcc compile` with what was said of the model, the target, the modes and the store.

    Args:
        request: None in its configs is "not said" and stays so.
        root: the store; named when it is not the one that a command would take by itself.
        target: what code is made for; empty leaves the choice to the machine that compiles.
    """
    words = ["vcc", "compile", request.source.name]
    words += ["--target", target] if target else []
    words += ["--target-profile", "FILE"] if request.profile is not None else []
    words += [*_modes(request.compilation), *_model(request)]
    words += ["--cache-dir", str(root)] if root != cache_root() else []
    return shlex.join(words)


def _target(request: BuildRequest, refused: NotHere | None) -> str:
    """Of a GPU always: who compiles may have another or none. Never one that cannot run here."""
    if refused is not None and refused.rule == "arch":
        return refused.found
    if request.target.platform is Platform.CUDA:
        return str(request.target)
    if refused is not None and refused.rule == "cpu_level" and refused.found:
        return f"cpu:{refused.found}"
    return str(request.target) if request.target_named else ""


def _modes(config: CompilationConfig) -> Iterator[str]:
    """Flags where there are flags, JSON for the rest."""
    said = {name: value for name, value in plain(config).items() if value != {}}
    if config.cuda_graph_mode is not None:
        yield from ("--mode", said.pop("cuda_graph_mode"))
    if config.mode is not None:
        del said["mode"]
        yield from ("--compile", COMPILE_WORDS[config.mode])
    if config.level is not None:
        del said["level"]
        yield from ("-O", str(int(config.level)))
    if config.capture_sizes:
        yield from ("--shapes", ",".join(map(str, said.pop("capture_sizes"))))
    if said:
        yield from ("--compilation-config", canonical(said))


def _model(request: BuildRequest) -> Iterator[str]:
    model = request.model
    for option, value in (
        ("--dtype", model.dtype and model.dtype.value),
        ("--kv-cache-dtype", model.kv_cache_dtype and model.kv_cache_dtype.value),
        ("--revision", model.revision),
        ("--weights", request.weights),
        ("--max-model-len", model.max_model_len),
        ("--max-num-seqs", model.max_num_seqs),
        ("--max-num-batched-tokens", model.max_num_batched_tokens),
        ("--max-loras", model.max_loras),
        ("--max-lora-rank", model.max_lora_rank),
        *(("--lora-target-modules", name) for name in model.lora_target_modules or ()),
        *(("--shape", shape) for shape in request.source.shapes),
    ):
        if value is not None:
            yield from (option, str(value))
    if model.enable_lora:
        yield "--enable-lora"
    if request.source.kind == "decoder" and request.source.code:
        yield "--trust-remote-code"
