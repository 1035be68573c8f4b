"""The request of a large checkpoint is made from its headers: sparse files, no data, no torch."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path

import pytest

from vcc.cache.store import Store
from vcc.engine.config.target import Target
from vcc.engine.config.types import CompilationConfig, ModelConfig, ParallelConfig
from vcc.engine.finding import find
from vcc.engine.models.architectures import spec_of
from vcc.engine.models.bindings import expected_tensors
from vcc.engine.models.source import open_source
from vcc.engine.request import BuildRequest, look_up, settle
from vcc.engine.session import Session

SHARDS = 30
LIMIT = 0.1
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
"""The sizes of a Llama of 70B."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """141 GB of checkpoint in 30 shards that take no space."""
    folder = tmp_path_factory.mktemp("seventy")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    names = list(expected_tensors(spec_of(CONFIG)).items())
    share = -(-len(names) // SHARDS)
    weight_map = {}
    for number in range(SHARDS):
        file = f"model-{number + 1:05}-of-{SHARDS:05}.safetensors"
        own = names[number * share : (number + 1) * share]
        weight_map |= {name: file for name, _ in own}
        shard(folder / file, own)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def shard(file: Path, tensors: list[tuple[str, tuple[int, ...]]]) -> None:
    header, at = {}, 0
    for name, shape in tensors:
        size = 2
        for length in shape:
            size *= length
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        try:
            stream.truncate(8 + len(text) + at)
        except OSError as error:
            pytest.skip(f"no sparse file of {at} bytes here: {error}")


def asked(checkpoint: Path) -> BuildRequest:
    model, compilation = ModelConfig(str(checkpoint)), CompilationConfig()
    target = Target.parse("sm_90")
    return BuildRequest(open_source(str(checkpoint)), model, compilation, ParallelConfig(), target)


def test_the_files_are_as_large_as_they_say(checkpoint: Path) -> None:
    sizes = [file.stat() for file in checkpoint.glob("*.safetensors")]
    assert sum(one.st_size for one in sizes) > 140e9
    assert sum(one.st_blocks * 512 for one in sizes) < 10e6
    assert asked(checkpoint).source.parameters > 70e9


def test_a_request_of_140_gb_takes_a_tenth_of_a_second(checkpoint: Path) -> None:
    """From the name to the answer of an empty store; a busy moment may spoil two of three tries."""
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        settled = settle(asked(checkpoint))
        base, _ = look_up(settled)
        found = find(Session(settled, Store.open(checkpoint / "no-store")))
        taken.append(time.perf_counter() - start)
        assert found.entries == ()
    assert len(base.digest.hex) == 64
    assert min(taken) <= LIMIT, taken


def test_the_same_sizes_without_data_are_the_same_model(checkpoint: Path) -> None:
    with_data = open_source(str(checkpoint)).model_key()
    assert open_source(str(checkpoint), weights="none").model_key() == with_data
