"""Where adapters go in a decoder: its projections, with the matrices that are stacked by slot.

Torch-free. A projection that the decoder fuses (query, key and value; gate and up) has a part for
each projection that a checkpoint names: each part has rows of its own in both matrices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vcc.cache.errors import ConfigError
from vcc.engine.config.types import ModelConfig
from vcc.engine.models.architecture_table import ARCHITECTURES
from vcc.engine.models.decoder_spec import DecoderSpec
from vcc.engine.models.tensor_info import Shape

NO_SLOT = -1
"""The slot of a row without an adapter."""

A, B = "lora_a", "lora_b"
"""Names of both matrices, under their projection."""


@dataclass(frozen=True, slots=True)
class LoraSpec:
    """What code is made for.

    Attributes:
        slots: adapters that a step can hold.
        rank: the largest rank of an adapter.
        targets: projections that adapters may change, as checkpoints call them; empty: all.
    """

    slots: int
    rank: int
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Projection:
    """A projection of the decoder that adapters may change.

    Attributes:
        parameter: its module in the decoder, such as `layers.0.attn.qkv`.
        modules: its parts as checkpoints call them, such as `model.layers.0.self_attn.q_proj`.
        widths: rows of each part, that is columns of its result.
        inner: columns of its input.
    """

    parameter: str
    modules: tuple[str, ...]
    widths: tuple[int, ...]
    inner: int

    def shapes(self, lora: LoraSpec) -> dict[str, Shape]:
        """Shapes of the stacked matrices by parameter name."""
        parts = len(self.modules)
        return {
            f"{self.parameter}.{A}": (lora.slots, parts * lora.rank, self.inner),
            f"{self.parameter}.{B}": (lora.slots, sum(self.widths), lora.rank),
        }


def lora_of(model: ModelConfig) -> LoraSpec | None:
    """What a resolved configuration declares; None without adapters."""
    if not model.enable_lora:
        return None
    targets = model.lora_target_modules or ()
    return LoraSpec(model.max_loras or 1, model.max_lora_rank or 1, targets)


def check_lora(model: ModelConfig, spec: DecoderSpec | None) -> None:
    """Refuse adapters for a model that has no place for them.

    Args:
        model: resolved.
        spec: the decoder; None for a plain module.

    Raises:
        ConfigError: no built-in decoder, or target modules that it does not have.
    """
    lora = lora_of(model)
    if lora is None:
        return
    if spec is None or spec.architecture not in ARCHITECTURES:
        raise ConfigError(
            "enable_lora needs a built-in decoder",
            "adapters are added to the projections of the architectures that "
            "vcc compile --list-models names",
            "leave --enable-lora out",
        )
    known = {leaf(name) for one in _all(spec) for name in one.modules}
    if missing := [name for name in lora.targets if name not in known]:
        raise ConfigError(
            f'lora_target_modules names "{missing[0]}"',
            f"adapters of {spec.architecture} can change {', '.join(sorted(known))}",
            "name some of these, or leave it out for all of them",
        )


def check_not_recorded(model: ModelConfig, *, recorded: bool) -> None:
    """Refuse adapters where kernels are recorded from an eager step.

    Raises:
        ConfigError: they are enabled.
    """
    if model.enable_lora and recorded:
        raise ConfigError(
            "enable_lora goes with compiled code on a GPU",
            "a recording has the matrices of one step, and no place where others could be written",
            "use --compile vcc, or leave --enable-lora out",
        )


def projections(spec: DecoderSpec, lora: LoraSpec) -> tuple[Projection, ...]:
    """The projections that adapters may change, in the order of the model."""
    wanted = frozenset(lora.targets)
    return tuple(
        one
        for one in _all(spec)
        if not wanted or not wanted.isdisjoint(leaf(name) for name in one.modules)
    )


def shapes_of(spec: DecoderSpec, lora: LoraSpec) -> Mapping[str, Shape]:
    """The shape of every stacked matrix by parameter name."""
    found: dict[str, Shape] = {}
    for one in projections(spec, lora):
        found |= one.shapes(lora)
    return found


def leaf(module: str) -> str:
    """The last part of a module's name."""
    return module.rpartition(".")[2]


def _all(spec: DecoderSpec) -> Iterator[Projection]:
    names, hidden, width = ARCHITECTURES[spec.architecture].names, spec.hidden, spec.intermediate
    attention = (spec.q_width, spec.kv_width, spec.kv_width)
    for index in range(spec.layers):
        own, home = f"layers.{index}", f"model.layers.{index}"
        yield _made(f"{own}.attn.qkv", f"{home}.self_attn", names.qkv, attention, hidden)
        yield _made(f"{own}.attn.o", f"{home}.self_attn", ("o_proj",), (hidden,), spec.q_width)
        if not spec.is_sparse(index):
            both = (width, width)
            yield _made(f"{own}.mlp.gate_up", f"{home}.mlp", names.gate_up, both, hidden)
            yield _made(f"{own}.mlp.down", f"{home}.mlp", ("down_proj",), (hidden,), width)


def _made(
    parameter: str, block: str, names: tuple[str, ...], widths: tuple[int, ...], inner: int
) -> Projection:
    outer = widths if len(names) == len(widths) else (sum(widths),)
    return Projection(parameter, tuple(f"{block}.{name}" for name in names), outer, inner)
