"""`adapter_config.json` as PEFT writes it: what of it is understood, and what is refused by name.

A field that is not known here and is set to something is refused: it may change what is computed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vcc.cache.errors import ModelError
from vcc.engine.models.json_file import read_json
from vcc.engine.models.lora.coverage import Coverage, read_coverage

FILE = "adapter_config.json"

HIGHEST_RANK = 1 << 16
LOWEST_ALPHA = 1e-6

REFUSED: Mapping[str, str] = {
    "use_dora": "it is DoRA, which scales whole columns of the weights",
    "lora_bias": "it has biases of its own",
    "modules_to_save": "it replaces whole modules",
    "trainable_token_indices": "it changes embeddings",
    "layer_replication": "it repeats layers of the model",
    "target_parameters": "it changes parameters that are no projections, such as experts",
    "alora_invocation_tokens": "it is active for some tokens of a prompt only",
    "fan_in_fan_out": "its matrices are stored transposed",
    "megatron_config": "it is for a model that is split by Megatron",
    "use_qalora": "it is QALoRA, which pools its input",
}
"""Fields that must not be set, and what they mean."""

NEUTRAL = frozenset(
    {
        *("peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "bias"),
        *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
        *("auto_mapping", "base_model_name_or_path", "revision", "inference_mode", "task_type"),
        *("peft_version", "runtime_config", "lora_dropout", "init_lora_weights", "megatron_core"),
        *("loftq_config", "eva_config", "corda_config", "qalora_group_size"),
    }
)
"""Fields that are read here, or that say how the adapter was trained."""

CHANGING = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Beginnings of `init_lora_weights` that take what they begin with off the model's own weights."""

_PLAIN = re.compile(r"[\w.]{1,200}")


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """What the file says of the matrices.

    Attributes:
        rank, alpha: where no pattern says otherwise.
        rank_stabilised: the scale is alpha / sqrt(rank), not alpha / rank.
        ranks, alphas: of modules whose names end with the key.
        coverage: which modules it changes.
    """

    rank: int
    alpha: float
    rank_stabilised: bool
    ranks: Mapping[str, int]
    alphas: Mapping[str, float]
    coverage: Coverage

    def rank_of(self, module: str) -> int:
        """The rank of a module's matrices."""
        return int(_matching(self.ranks, module, self.rank))

    def scale_of(self, module: str) -> float:
        """The factor on the product of a module's matrices."""
        rank, alpha = self.rank_of(module), float(_matching(self.alphas, module, self.alpha))
        return alpha / (math.sqrt(rank) if self.rank_stabilised else rank)


def read_config(directory: Path) -> AdapterConfig:
    """Read and check the file.

    Raises:
        ModelError: it is missing, malformed, or of an adapter that is not supported.
    """
    file = directory / FILE
    found = read_json(file)
    kind = found.get("peft_type")
    if kind != "LORA":
        raise _refused(file, f"peft_type is {kind!r:.40}, only LORA is supported")
    for name, why in REFUSED.items():
        if found.get(name):
            raise _refused(file, f"{name} is set: {why}")
    if found.get("bias", "none") != "none":
        raise _refused(file, f"bias is {found['bias']!r:.40}: biases are not adapted, only none is")
    begun = found.get("init_lora_weights")
    if isinstance(begun, str) and begun.lower().startswith(CHANGING):
        raise _refused(
            file, f"init_lora_weights is {begun!r:.40}: the model's weights were changed"
        )
    for name, value in found.items():
        if value and name not in NEUTRAL and name not in REFUSED:
            raise _refused(file, f"{name[:60]!r} is set, and its meaning is not known")
    return AdapterConfig(
        rank=int(_number(file, "r", found.get("r"), whole=True)),
        alpha=_number(file, "lora_alpha", found.get("lora_alpha", 8)),
        rank_stabilised=_flag(file, "use_rslora", found.get("use_rslora")),
        ranks={k: int(v) for k, v in _pattern(file, "rank_pattern", found, whole=True).items()},
        alphas=_pattern(file, "alpha_pattern", found),
        coverage=read_coverage(found, partial(_refused, file)),
    )


def _pattern(
    file: Path, name: str, found: Mapping[str, Any], *, whole: bool = False
) -> dict[str, float]:
    """Numbers by the end of a module's name; PEFT takes expressions, which are refused here."""
    table = found.get(name) or {}
    if not isinstance(table, dict):
        raise _refused(file, f"{name} is no object")
    for key in table:
        if not _PLAIN.fullmatch(key):
            raise _refused(
                file, f"{name} holds {key[:60]!r}: only plain names of modules are taken"
            )
    return {key: _number(file, f"{name}.{key}", v, whole=whole) for key, v in table.items()}


def _flag(file: Path, name: str, value: Any) -> bool:
    if value is not None and type(value) is not bool:
        raise _refused(file, f"{name} is {value!r:.40}, neither true nor false")
    return bool(value)


def _number(file: Path, name: str, value: Any, *, whole: bool = False) -> float:
    kinds = (int,) if whole else (int, float)
    least = 1 if whole else LOWEST_ALPHA
    if type(value) not in kinds or not least <= value <= HIGHEST_RANK:
        wanted = "a whole number" if whole else "a number"
        wanted = f"{wanted} from {least} to {HIGHEST_RANK}"
        raise _refused(file, f"{name} is {value!r:.40}, not {wanted}")
    return float(value)


def _matching(table: Mapping[str, float], module: str, default: float) -> float:
    """The first entry whose key is the module's name or ends it, as PEFT looks them up."""
    for key, value in table.items():
        if module == key or module.endswith(f".{key}"):
            return value
    return default


def _refused(file: Path, why: str) -> ModelError:
    return ModelError(
        f"the adapter in {file.parent} is not supported",
        why,
        "docs/lora.md says which adapters are; merge this one into its model instead",
    )
