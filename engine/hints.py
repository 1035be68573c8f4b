"""What a user can do about a factor that differs: one line a label, as a table. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from vcc.cache.key import Difference
from vcc.engine.config.modes import CompileMode
from vcc.engine.config.spellings import COMPILE_WORDS

Hint = Callable[[Difference], str]
Fields = Mapping[str, str]


def hint_of(difference: Difference, fields: Fields = MappingProxyType({})) -> str:
    """The option or the upgrade that makes the nearest artifact answer.

    Args:
        difference: found: what the artifact has, wanted: what the look-up has.
        fields: the artifact's request.
    """
    if difference.label == "target.platform" and "target" in fields:
        return f"--target {fields['target']}"  # the label's own value names no architecture
    for label, hint in HINTS.items():
        if difference.label == label or (label[-1] == "." and difference.label.startswith(label)):
            return hint(difference)
    return _REBUILD(difference)


_HERE = "vcc compile builds one for what is installed here"


def _option(name: str) -> Hint:
    """The option that names what the artifact has; without it where the artifact has nothing."""
    return lambda one: (
        f"{name} {one.found}" if one.found not in (None, "null", "{}") else f"leave {name} away"
    )


def _sizes(one: Difference) -> str:
    return f"--shapes {(one.found or '').strip('[]')}"


def _compile_mode(one: Difference) -> str:
    words = {mode.name: word for mode, word in COMPILE_WORDS.items()}
    word = words.get(one.found or "", COMPILE_WORDS[CompileMode.VCC_COMPILE])
    return f"--compile {word}"


def _field(one: Difference) -> str:
    """Any other field of the configuration, in the JSON that every command reads."""
    *outer, name = one.label.removeprefix("config.").split(".")
    value = one.found or "null"
    quoted = value if value[0] in '[{"-0123456789tfn' else f'"{value}"'
    text = f'"{name}": {quoted}'
    for part in reversed(outer):
        text = f'"{part}": {{{text}}}'
    return f"--compilation-config '{{{text}}}'"


def _install(package: str) -> Hint:
    return lambda one: (
        f"{_HERE}, or: pip install '{package}=={one.found}'"
        if one.found not in (None, "none")
        else _HERE
    )


def _host_torch(one: Difference) -> str:
    return f"pip install 'torch=={one.found}.*', or vcc compile for what is installed"


def _source(one: Difference) -> str:
    what = "the model" if one.label.startswith("model.") else "with it"
    if one.found is None or one.wanted is None:
        return f"another set of source files: vcc compile builds {what} as it is now"
    return f"the source was edited since: vcc compile builds {what} as it is now"


def _rebuild(one: Difference) -> str:
    return "vcc compile builds one"


def _back_end(one: Difference) -> str:
    """A custom op that runs elsewhere: the artifact's back end can be asked for."""
    op, backend = one.label.removeprefix("op."), (one.found or "native").partition(" ")[0]
    return f'"custom_ops": ["+{op}:{backend}"] where that back end is, or {_HERE}'


def _lora(one: Difference) -> str:
    """Code without adapters cannot take one; code with them runs without any."""
    if one.wanted == "true":
        return "the artifact has no place for adapters: vcc compile --enable-lora"
    return "--enable-lora, as the artifact has"


_REBUILD: Hint = _rebuild

HINTS: Mapping[str, Hint] = {
    "model.digest": lambda one: "another model: vcc compile builds this one",
    "model.code.": _source,
    "model.factory": lambda one: f"the artifact is of {one.found}",
    "model.shape.": lambda one: f"--shape {one.label.rpartition('.')[2]}={one.found}",
    "model.dtype": _option("--dtype"),
    "model.kv_cache_dtype": _option("--kv-cache-dtype"),
    "model.quantisation": lambda one: "vcc compile builds one in this weight format",
    "model.max_model_len": _option("--max-model-len"),
    "model.max_num_seqs": _option("--max-num-seqs"),
    "model.max_num_batched_tokens": _option("--max-num-batched-tokens"),
    "model.enable_lora": _lora,
    "model.max_loras": _option("--max-loras"),
    "model.max_lora_rank": _option("--max-lora-rank"),
    "model.lora_target_modules": lambda one: "--lora-target-modules with those of the artifact",
    "model.max_positions": lambda one: "the configuration of the model differs",
    "model.block_size": lambda one: "vcc compile builds one for this block size",
    "model.": lambda one: "the configuration of the model differs: vcc compile builds this one",
    "parallel.": lambda one: "vcc compile builds one for this parallel layout",
    "target": _option("--target"),
    "target.platform": lambda one: "--target with the artifact's own",
    "target.profile": lambda one: "--target-profile with the file it was built for, or none",
    "config.cuda_graph_mode": _option("--mode"),
    "config.mode": _compile_mode,
    "config.level": lambda one: f"-{one.found}",
    "config.capture_sizes": _sizes,
    "config.": _field,
    "host.torch": _host_torch,
    "host.cpu_level": lambda one: "vcc compile --target cpu:LEVEL with a level that this CPU has",
    "host.arch": lambda one: f"vcc compile --target {one.wanted}",
    "host.driver": lambda one: f"install a driver of CUDA {one.found} or later",
    "host.machine": lambda one: "vcc compile on this machine",
    "host.": lambda one: "upgrade vcc, or vcc compile with this one",
    "version.torch": _install("torch"),
    "version.triton": _install("triton"),
    "version.vcc": _install("vcc"),
    "version.": lambda one: _HERE,
    "op.": _back_end,
    "user_op.": _source,
    "user_pass.": _source,
    "vcc.source": lambda one: "vcc's own build side changed: vcc compile builds one with this vcc",
    "compiler": lambda one: f"CXX={(one.found or '').partition(' ')[0]}, or vcc compile with this",
    "env.": lambda one: f"set {one.label.removeprefix('env.')} as it was: {one.found}",
}
"""The first label that is equal, or that the label begins with when it ends in a dot."""
