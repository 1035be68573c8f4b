"""Requests: what a user asks for, settled into full values and into the labels of the store.

A build and a run go through the same functions, without torch, so that both mean the same thing
by the same words. A run states the *base* in full; of the *open* fields it states those that its
user named or that decide what is computed, and anything answers the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vcc.cache.errors import ConfigError
from vcc.cache.key import Key
from vcc.cache.loaded import Loaded
from vcc.cache.request import Entry
from vcc.engine.asked_ops import check_asked
from vcc.engine.asked_ops import source_entries as layer_entries
from vcc.engine.config.custom_ops import decided
from vcc.engine.config.keys import key_entries
from vcc.engine.config.model import check_parallel, resolve_model
from vcc.engine.config.modes import Dtype, KvDtype, Platform
from vcc.engine.config.resolve import PlatformFacts, Reason, Resolved, resolve
from vcc.engine.config.target import Target
from vcc.engine.config.types import CompilationConfig, ModelConfig, ParallelConfig
from vcc.engine.models.lengths import computes_by_length, positions_of, usual_length
from vcc.engine.models.lora.spec import check_lora
from vcc.engine.models.quant.kv import check_cache
from vcc.engine.models.quant.target import check_target
from vcc.engine.ops import names
from vcc.engine.ranged import ranged_size
from vcc.engine.user_passes import source_entries

if TYPE_CHECKING:
    from vcc.engine.models.source import Source
    from vcc.engine.torch_shim.profiles import DeviceProfile

KNOWN_OPS = names.KNOWN_OPS
"""Names of the custom ops, as the operator layers have them."""

_BASE = (
    *("model.digest", "model.dtype", "model.kv_cache_dtype", "model.quantisation"),
    *("parallel.", "target.platform"),
)
_UNSET = ("null", "{}")


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """What to build, as the user said it; None in a config means "not said".

    Attributes:
        source: the opened model.
        model, compilation, parallel, target: the configuration.
        profile: the device to compile for; None takes the table's for the target.
        target_named: the user named the target: a GPU artifact for another does not answer.
        weights: "none", a directory to read weights from, or None for the model's own.
        jobs: worker processes; 0 chooses.
        keep: folder for intermediate files, or None.
    """

    source: Source
    model: ModelConfig
    compilation: CompilationConfig
    parallel: ParallelConfig
    target: Target
    profile: DeviceProfile | None = None
    target_named: bool = False
    weights: str | None = None
    jobs: int = 0
    keep: Path | None = None


SAME_MEANING = ("sorted", "canonical form", "in the order given")
"""Beginnings of reasons that put a value into another form and change nothing."""

SEQUENCES = ("max_model_len", "block_size")
"""Limits that a model without sequences does not have."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A request with every field decided.

    Attributes:
        request: what was asked.
        model: limits and dtype, filled.
        resolved: the compilation config, filled, with reasons.
    """

    request: BuildRequest
    model: ModelConfig
    resolved: Resolved

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """What resolution decided and why."""
        return self.resolved.reasons

    @property
    def overruled(self) -> tuple[str, ...]:
        """A line for each field that was asked for and that the build does not have as it was."""
        changed = (
            str(one)
            for one in self.reasons
            if one.field != "inductor_config"  # the user's options stay, the level's join them
            and self._said(one.field)
            and not one.why.startswith(SAME_MEANING)
        )
        return (*changed, *self.meaningless)

    @property
    def meaningless(self) -> tuple[str, ...]:
        """A line for each limit of sequences that was asked for of a model that has none."""
        if self.request.source.kind == "decoder":
            return ()
        asked = ((name, getattr(self.request.model, name)) for name in SEQUENCES)
        why = "a plain forward has no sequences, the sizes of its inputs are those of --shape"
        return tuple(f"{n} = {value} has no effect: {why}" for n, value in asked if value)

    def _said(self, field: str) -> bool:
        """Whether the request gives the field, named as in reasons (`pass_config.NAME`)."""
        value: object = self.request.compilation
        for name in field.split("."):
            value = getattr(value, name)
        return value is not None and not is_dataclass(value)


@dataclass(frozen=True, slots=True)
class Built:
    """The result of a build: usable also when it could not be stored.

    Attributes:
        loaded: the artifact.
        entry: its place in the store; None when it could not be written.
        reused: the store had its code already, nothing was compiled.
        planned: that code was stored under another plan, as an artifact of its own.
        trouble: why it was not stored; empty when it was.
    """

    loaded: Loaded
    entry: Entry | None
    reused: bool = False
    trouble: str = ""
    planned: bool = False


def settle(request: BuildRequest) -> Settled:
    """Decide every field; the same for a build and for a run.

    Raises:
        ConfigError: fields that contradict each other, the model or the limits.
        DeviceError: a dtype the platform has no kernels for.
    """
    check_parallel(request.parallel, _experts(request.source))
    model = resolve_model(
        request.model,
        positions=positions_of(request.source),
        usual=usual_length(request.source),
        dtype=_stored_dtype(request.source),
        platform=request.target.platform,
        quantisation=_quantisation(request),
        kv_cache=_kv_cache(request.source),
    )
    decoder = request.source.kind == "decoder"
    check_cache(model.kv_cache_dtype, request.target, decoder=decoder)
    check_lora(model, request.source.spec if decoder else None)
    resolved = resolve(request.compilation, _facts(request, model))
    mode = resolved.config.mode
    if mode is not None:
        check_asked(resolved.ops, request.target.platform, mode)
    source = request.source.for_length(model.max_model_len).with_cache(model.kv_cache_dtype)
    return Settled(replace(request, source=source), model, resolved)


def _quantisation(request: BuildRequest) -> str | None:
    """The method of the checkpoint; DeviceError where the target cannot multiply its weights."""
    quant = request.source.spec.quant if request.source.kind == "decoder" else None
    if quant is not None:
        check_target("the weights of this model", request.target)
    return None if quant is None else quant.method


def _kv_cache(source: Source) -> KvDtype | None:
    """What the checkpoint has scales for."""
    return KvDtype.FP8 if source.kind == "decoder" and source.spec.kv is not None else None


def _experts(source: Source) -> int:
    found = source.spec.experts if source.kind == "decoder" else None
    return found.count if found else 0


def _facts(request: BuildRequest, model: ModelConfig) -> PlatformFacts:
    decoder, platform = request.source.kind == "decoder", request.target.platform
    tokens = model.max_num_batched_tokens or 1
    ranged = ranged_size(request.source, tokens)
    return PlatformFacts(
        platform=platform,
        max_num_seqs=model.max_num_seqs or 1,
        max_num_batched_tokens=tokens,
        max_loras=model.max_loras or 0,
        known_ops=KNOWN_OPS,
        breakable_graphs=decoder,
        stepped=decoder,
        sizes=None if decoder else ranged.sizes,
        unranged=ranged.why,
    )


def request_pairs(settled: Settled) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """All labels of a request with their canonical text, and which of them are open.

    The first is `Manifest.request`, the second `Manifest.open_fields` (sorted).
    """
    pairs = {
        "model.digest": settled.request.source.model_key().digest.hex,
        "target.platform": settled.request.target.platform.value,
        "target": str(settled.request.target),
        **config_entries(settled.model),
        **config_entries(settled.resolved.config),
        **config_entries(settled.request.parallel),
        **_profile_entry(settled.request),
        **source_entries(settled.resolved.config.user_passes or ()),
        **layer_entries(settled.resolved.ops),
    }
    return pairs, tuple(sorted(label for label in pairs if not label.startswith(_BASE)))


def look_up(settled: Settled) -> tuple[Key, Mapping[str, str]]:
    """The base key and the stated open fields to ask a store for.

    Open fields are stated when the user set them; their value is the resolved one.
    """
    pairs, open_fields = request_pairs(settled)
    base = {label: value for label, value in pairs.items() if label not in open_fields}
    stated = _stated(settled.request)
    return Key.of(base), {label: pairs[label] for label in open_fields if label in stated}


def _stated(request: BuildRequest) -> frozenset[str]:
    said = {**config_entries(request.model), **config_entries(request.compilation)}
    labels = {label for label, value in said.items() if value not in _UNSET}
    if request.compilation.max_capture_size is not None:
        labels.add("config.capture_sizes")  # what it is folded into
    if request.target_named and request.target.platform is Platform.CUDA:
        labels.add("target")
    if computes_by_length(request.source):
        labels.add("model.max_model_len")  # code for another length gives other tokens
    sources = {
        **source_entries(request.compilation.user_passes or ()),
        **layer_entries(decided(request.compilation.custom_ops or ())),
    }
    return frozenset(labels | _profile_entry(request).keys() | sources.keys())


def _profile_entry(request: BuildRequest) -> dict[str, str]:
    """The device of the user's own that code is made for."""
    return {} if request.profile is None else {"target.profile": request.profile.digest}


def config_entries(config: CompilationConfig | ModelConfig | ParallelConfig) -> dict[str, str]:
    """The labels of a request that come from a part of its configuration, as canonical text."""
    pairs = (*key_entries(config, "code"), *key_entries(config, "plan"))
    level = dict(key_entries(config, "none")).get("config.level")
    return dict(pairs) if level is None else dict(pairs) | {"config.level": level}


def _stored_dtype(source: Source) -> Dtype:
    return next((one for one in Dtype if one.torch_name == source.dtype), Dtype.FP32)


def check_buildable(settled: Settled) -> None:
    """Refuse what no artifact can hold.

    Raises:
        ConfigError: the compile mode stores nothing on this platform.
    """
    rule = settled.resolved.artifact
    if rule.refusal:
        mode = settled.resolved.config.mode
        name = "this mode" if mode is None else mode.name
        raise ConfigError(f"{name} gives no artifact to store", rule.refusal, rule.hint)
