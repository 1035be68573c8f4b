"""The decoder against transformers, by the numbers rule, and its promises about memory."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from support.checkpoints import ARCHITECTURES, OWN_SIZES, make_checkpoint, reference_logits
from support.eager_step import EagerStepper, load_decoder, run_in_steps
from support.numbers import assert_fp32_close, assert_low_precision
from torch._subclasses import FakeTensorMode

from vcc.engine.config.modes import AttentionSupport
from vcc.engine.models.architectures import spec_of
from vcc.engine.models.decoder import Decoder, attention_support
from vcc.engine.ops.choice import OpChoice

LENGTHS = {0: 1, 1: 17, 2: 200, 3: 23, 4: 24, 5: 25}
"""One token, an odd few, many; and the block edge and window (24) with its neighbours."""

WHOLE: tuple[Mapping[int, int], ...] = tuple({s: n} for s, n in LENGTHS.items())
CHUNKED: tuple[Mapping[int, int], ...] = (
    *({2: 40} for _ in range(5)),
    {1: 8, 3: 8, 4: 12, 5: 16},
)
MIXED: tuple[Mapping[int, int], ...] = (
    {1: 16, 2: 64},
    {1: 1, 2: 63, 0: 1},
    {3: 1, 2: 1, 4: 23},
    *({3: 1, 2: 1, 5: 1} for _ in range(10)),
    {4: 1, 2: 30},
)
SCHEDULES = {"whole": WHOLE, "chunked": CHUNKED, "mixed": MIXED}
EVERY_OP = OpChoice(frozenset({"rms_norm", "silu_and_mul", "rotary_embedding"}))


def prompts(vocab: int = 160) -> dict[int, list[int]]:
    draw = random.Random(7)
    return {s: [draw.randrange(4, vocab) for _ in range(n)] for s, n in LENGTHS.items()}


def logits(
    directory: Path, dtype: str, schedule: Sequence[Mapping[int, int]], ops: OpChoice | None = None
) -> torch.Tensor:
    pad = 3 if schedule is MIXED else 0
    stepper = EagerStepper(load_decoder(directory, dtype, ops), pad=pad)
    found = run_in_steps(stepper, prompts(), schedule)
    return torch.cat([found[s] for s in LENGTHS])


def reference(directory: Path, dtype: str) -> torch.Tensor:
    return torch.cat([reference_logits(directory, p, dtype) for p in prompts().values()])


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_fp32_logits_equal_transformers_in_every_schedule(arch: str, tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path, arch)
    wanted = reference(directory, "float32")
    for schedule in SCHEDULES.values():
        assert_fp32_close(logits(directory, "float32", schedule), wanted)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_fp32_logits_of_a_tied_sharded_checkpoint_equal_transformers(
    arch: str, tmp_path: Path
) -> None:
    directory = make_checkpoint(tmp_path, arch, tied=True, shards=3)
    assert len(list(directory.glob("*.safetensors"))) > 1
    assert_fp32_close(logits(directory, "float32", MIXED), reference(directory, "float32"))


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_bf16_error_is_within_that_of_transformers(arch: str, tied: bool, tmp_path: Path) -> None:
    """With the operators that round once, as compiled code does."""
    directory = make_checkpoint(tmp_path, arch, dtype="bfloat16", tied=tied)
    wanted, peer = (reference(directory, dtype) for dtype in ("float32", "bfloat16"))
    schedule = WHOLE if tied else MIXED
    assert_low_precision(logits(directory, "bfloat16", schedule, EVERY_OP), wanted, peer)


ROPES = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "yarn-all": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "mscale": 1.2,
        "mscale_all_dim": 0.8,
        "truncate": False,
    },
}


@pytest.mark.parametrize("rope", ROPES)
def test_scaled_rope_equals_transformers(rope: str, tmp_path: Path) -> None:
    arch = "qwen3" if rope == "yarn" else "llama"
    parameters = {"rope_theta": 1000.0, **ROPES[rope]}
    directory = make_checkpoint(tmp_path, arch, rope_parameters=parameters)
    wanted = reference(directory, "float32")
    assert_fp32_close(logits(directory, "float32", WHOLE), wanted)


def test_llama_with_biases_and_wide_heads_equals_transformers(tmp_path: Path) -> None:
    directory = make_checkpoint(
        tmp_path, "llama", attention_bias=True, mlp_bias=True, head_dim=24, num_key_value_heads=4
    )
    assert_fp32_close(logits(directory, "float32", WHOLE), reference(directory, "float32"))


@pytest.mark.parametrize(("arch", "head_dim"), [("llama", 80), ("phi3", 96), ("qwen3_moe", 80)])
def test_heads_and_vocabularies_of_odd_sizes_equal_transformers(
    arch: str, head_dim: int, tmp_path: Path
) -> None:
    """Heads that are no power of two, and a vocabulary that no tile divides."""
    sizes = {"head_dim": head_dim, "vocab_size": 161}
    if arch == "phi3":
        plain = {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.75}
        sizes |= {"hidden_size": 4 * head_dim, "rope_parameters": plain}
    directory = make_checkpoint(tmp_path, arch, **sizes)
    assert_fp32_close(logits(directory, "float32", MIXED), reference(directory, "float32"))


def test_a_long_rope_has_one_set_for_all_tokens_by_the_longest_sequence(tmp_path: Path) -> None:
    """Above the original length transformers has the long set for a whole prompt; so have we, for
    every part of it; for shorter prompts it must be told to."""
    own = dict(OWN_SIZES["phi3"]["rope_parameters"])
    settings = {"original_max_position_embeddings": 20}
    long = make_checkpoint(tmp_path / "long", "phi3", rope_parameters=own, **settings)
    same = own | {"short_factor": own["long_factor"]}
    told = make_checkpoint(tmp_path / "told", "phi3", rope_parameters=same, **settings)
    found = run_in_steps(EagerStepper(load_decoder(long, "float32", length=512)), prompts(), MIXED)
    for sequence, prompt in prompts().items():
        directory = long if len(prompt) > 20 else told
        assert_fp32_close(found[sequence], reference_logits(directory, prompt, "float32"))
    short = run_in_steps(EagerStepper(load_decoder(long, "float32")), {1: prompts()[1]}, [{1: 17}])
    assert_fp32_close(short[1], reference_logits(long, prompts()[1], "float32"))


@pytest.mark.parametrize("arch", ["qwen3", "gemma2"])
def test_the_operator_kernels_give_the_same_numbers(arch: str, tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path, arch)
    mine = logits(directory, "float32", MIXED, EVERY_OP)
    assert_fp32_close(mine, reference(directory, "float32"))


CONFIG_8B = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}


def test_an_8b_decoder_without_weights_takes_no_weight_memory() -> None:
    spec = spec_of(CONFIG_8B)
    for context in (torch.device("meta"), FakeTensorMode()):
        with context:
            decoder = Decoder(spec, torch.bfloat16)
        assert all(p.device.type == "meta" or p.fake_mode for p in decoder.parameters())
        assert sum(p.numel() for p in decoder.parameters()) > 8e9


def test_paged_attention_may_be_part_of_any_static_graph() -> None:
    assert attention_support(spec_of(CONFIG_8B)) is AttentionSupport.ALWAYS
