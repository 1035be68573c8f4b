"""The numbers rule with fusions: all of them, each alone and none, against transformers.

Pieces run by the eager back end, which compiles nothing; the long form has every cell, and one that
Inductor compiled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from support.checkpoints import make_checkpoint, reference_logits
from support.flow import Forcer, ask, booted, built, draw_prompts, force
from support.numbers import assert_fp32_close, assert_low_precision
from torch import Tensor

from vcc.cache.store import Store
from vcc.engine.config.levels import PASS_RULES

PROMPTS = dict(enumerate(draw_prompts((1, 17, 60), 160)))
SCHEDULE = ({0: 1, 1: 9, 2: 30}, {1: 8, 2: 29}, {2: 1})
TORCH_NAMES = {"fp32": "float32", "bf16": "bfloat16"}
LIMITS = {"max_model_len": 256, "max_num_seqs": 8, "max_num_batched_tokens": 64}

FUSIONS = tuple(rule.name for rule in PASS_RULES if rule.name.startswith("fuse_"))
ALONE = ("fuse_qk_norm_rope", "fuse_rope_kv_write", "fuse_norm_linear")
"""Fusions of operators that a decoder's layers call; the others read plain torch or fp8."""
DECODERS = tuple(set(FUSIONS) - {"fuse_attention_quant", "fuse_all_reduce_norm"})
PLAIN = ("fuse_rms_norm", "fuse_add_rms_norm", "fuse_act_mul")


def switches(*on: str) -> dict[str, bool]:
    return {name: name in on for name in FUSIONS}


CONFIGS: Mapping[str, dict[str, Any]] = {
    "off": {"custom_ops": ["all"], "pass_config": switches()},
    "by level": {"custom_ops": ["all"]},
    "all": {"custom_ops": ["all"], "pass_config": switches(*DECODERS)},
    "plain torch": {"custom_ops": ["none"], "pass_config": switches(*PLAIN)},
    **{name: {"custom_ops": ["all"], "pass_config": switches(name)} for name in ALONE},
    **{
        f"{name} of plain torch": {"custom_ops": ["none"], "pass_config": switches(name)}
        for name in ("fuse_rms_norm", "fuse_act_mul")
    },
}
FIRES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "by level": {"qwen3": ("fuse_qk_norm_rope",), "*": ("fuse_rope_kv_write",)},
    "all": {
        "qwen3": ("fuse_qk_norm_rope", "fuse_norm_linear"),
        "*": ("fuse_rope_kv_write", "fuse_norm_linear"),
    },
    "plain torch": {
        "*": ("fuse_rms_norm", "fuse_add_rms_norm", "fuse_act_mul"),
    },
}
"""What must fire; `*` is every other architecture."""


@dataclass(frozen=True)
class Cell:
    """A checkpoint in a dtype, and a configuration."""

    arch: str
    dtype: str
    config: str
    backend: str = "EAGER"

    def __str__(self) -> str:
        end = "" if self.backend == "EAGER" else "-compiled"
        return f"{self.arch}-{self.dtype}-{self.config}{end}"


SHORT = (
    Cell("llama", "fp32", "by level"),
    Cell("qwen2", "bf16", "by level"),
    Cell("mistral", "fp32", "plain torch"),
    Cell("qwen3", "fp32", "all"),
    Cell("gemma2", "bf16", "plain torch"),
)
ARCHITECTURES = ("llama", "qwen2", "qwen3", "mistral", "gemma2")
LONG = [
    *(Cell(a, d, c) for a in ARCHITECTURES for d in TORCH_NAMES for c in CONFIGS),
    *(Cell("qwen3", dtype, "by level", "INDUCTOR") for dtype in TORCH_NAMES),
]
CELLS = (
    *SHORT,
    *(pytest.param(one, marks=pytest.mark.slow) for one in LONG if one not in SHORT),
)


@lru_cache(maxsize=2)
def expected(directory: Path, dtype: str) -> tuple[Tensor, Tensor]:
    """Logits of all prompts in fp32, and of transformers in a dtype."""
    made = [
        torch.cat([reference_logits(directory, p, name).float() for p in PROMPTS.values()])
        for name in ("float32", TORCH_NAMES[dtype])
    ]
    return made[0], made[1]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("checkpoints")

    @cache
    def made(arch: str, dtype: str) -> Path:
        directory = root / f"{arch}-{dtype}"
        directory.mkdir()
        make_checkpoint(directory, arch, dtype=TORCH_NAMES[dtype])
        return directory

    return made


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_logits_keep_to_the_rule_and_are_the_same_from_the_store(
    cell: Cell, checkpoints: Any, tmp_path: Path
) -> None:
    directory = checkpoints(cell.arch, cell.dtype)
    config = json.dumps({**CONFIGS[cell.config], "backend": cell.backend})
    asked = ask(directory, dtype=cell.dtype, config=config, **LIMITS)
    store = Store.open(tmp_path / "store")
    cold = built(asked, store)
    _check_fired(cell, cold.loaded.manifest.info["passes"])
    first = _logits(asked, store)
    assert built(asked, store).reused
    assert torch.equal(_logits(asked, store), first)
    reference, peer = expected(directory, cell.dtype)
    if cell.dtype == "fp32":
        assert_fp32_close(first, reference)
    else:
        assert_low_precision(first, reference, peer)


def _check_fired(cell: Cell, passes: list[dict[str, Any]]) -> None:
    fired = {one["name"] for one in passes if one["matches"] and one["name"] in FUSIONS}
    wanted = FIRES.get(cell.config, {})
    assert fired >= set(wanted.get(cell.arch, wanted.get("*", ())))
    if cell.config == "off":
        assert not fired


def _logits(asked: Any, store: Store) -> Tensor:
    runner = booted(asked, store, lengths=[256] * len(PROMPTS)).runner
    found = force(Forcer(runner), PROMPTS, SCHEDULE)
    return torch.cat([found[one] for one in PROMPTS])


def test_a_switch_that_the_user_sets_stays(checkpoints: Any, tmp_path: Path) -> None:
    """Row M10: -O2 with a fusion set to False leaves it out; the level gives the others."""
    config = {"custom_ops": ["all"], "pass_config": {"fuse_norm_quant": False}}
    asked = ask(
        checkpoints("qwen3", "fp32"),
        dtype="fp32",
        config=json.dumps({**config, "level": 2, "backend": "EAGER"}),
        **LIMITS,
    )
    info = built(asked, Store.open(tmp_path / "store")).loaded.manifest.info
    names = [one["name"] for one in info["passes"]]
    assert "fuse_norm_quant" not in names
    assert {"fuse_qk_norm_rope", "fuse_act_quant", "fuse_rope_kv_write"} <= set(names)
