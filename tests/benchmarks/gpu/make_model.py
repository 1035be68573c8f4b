"""Write a checkpoint of a Llama shape with random bf16 weights, fast: python make_model.py 8b DIR.

The bytes lie in the page cache afterwards (or in memory, where DIR is on a tmpfs). Matrices are
cut from one block of normal numbers at offsets of their own, so 16 GB take seconds, not minutes.
The tokenizer is the demo's: 2,048 tokens of a larger vocabulary, enough for prompts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import struct
import time
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

COMMON = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "max_position_embeddings": 8192,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 0,
    "eos_token_id": 128001,
    "pad_token_id": 0,
}
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "1b": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "head_dim": 64,
        "tie_word_embeddings": True,
    },
    "8b": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "head_dim": 128,
        "tie_word_embeddings": False,
    },
    "tiny": {
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "head_dim": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 4096,
        "eos_token_id": 4095,
        "tie_word_embeddings": True,
    },
}
SHARD_BYTES = 1 << 31
POOL = 1 << 25
"""Elements of the block of random numbers: 64 MiB."""
WRITE = 1 << 26
PROMPT_TOKENS = 512


def config_of(size: str) -> dict[str, Any]:
    """config.json of one of `SHAPES`."""
    return {**COMMON, **SHAPES[size]}


def write_model(size: str, out: Path, threads: int = 8) -> dict[str, object]:
    """The whole directory; returns figures of the writing."""
    start = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    config = config_of(size)
    shards = list(_shards(list(_tensors(config))))
    pool = _pool()
    names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    with ThreadPoolExecutor(threads) as workers:
        jobs = [job for n, s in zip(names, shards, strict=True) for job in _lay_out(out / n, s)]
        list(workers.map(lambda job: _fill(*job, pool), jobs))
    weight_map = {t: n for n, s in zip(names, shards, strict=True) for t, _ in s}
    total = sum(_bytes(shape) for shard in shards for _, shape in shard)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    _json(out / "model.safetensors.index.json", index)
    _json(out / "config.json", config)
    ends = {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    _json(out / "generation_config.json", ends)
    prompt = _tokenizer(out)
    seconds = time.perf_counter() - start
    return {"bytes": total, "files": len(shards), "seconds": seconds, "prompt_tokens": prompt}


def _tensors(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    from vcc.engine.models.architectures import spec_of
    from vcc.engine.models.bindings import expected_tensors

    yield from expected_tensors(spec_of(config)).items()


def _bytes(shape: tuple[int, ...]) -> int:
    return 2 * int(np.prod(shape))


def _shards(tensors: list[tuple[str, tuple[int, ...]]]) -> Iterator[list[Any]]:
    part: list[Any] = []
    for name, shape in tensors:
        if part and sum(_bytes(s) for _, s in part) + _bytes(shape) > SHARD_BYTES:
            yield part
            part = []
        part.append((name, shape))
    yield part


def _pool() -> np.ndarray:
    """Normal numbers of spread 0.02 as bf16 bits."""
    drawn = np.random.default_rng(0).standard_normal(POOL, dtype=np.float32) * np.float32(0.02)
    return (drawn.view(np.uint32) >> 16).astype(np.uint16)


def _lay_out(file: Path, shard: list[Any]) -> list[tuple[Path, int, str, int]]:
    """Write the header; what is left are (file, offset, tensor, bytes) to fill."""
    entries, at = {}, 0
    for name, shape in shard:
        size = _bytes(shape)
        entries[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        stream.truncate(8 + len(text) + at)
    base = 8 + len(text)
    return [
        (file, base + entries[name]["data_offsets"][0] + done, name, min(WRITE, size - done))
        for name, shape in shard
        for size in [_bytes(shape)]
        for done in range(0, size, WRITE)
    ]


def _fill(file: Path, offset: int, name: str, size: int, pool: np.ndarray) -> None:
    count = size // 2
    if name.endswith("norm.weight"):
        data = np.full(count, 0x3F80, np.uint16)
    else:
        first = zlib.crc32(f"{name} {offset}".encode()) % POOL
        data = np.concatenate([pool[first:], pool[:first]])[:count]
    handle = os.open(file, os.O_WRONLY)
    try:
        os.pwrite(handle, data.tobytes(), offset)
    finally:
        os.close(handle)


def _tokenizer(out: Path) -> int:
    """The demo's tokenizer, and a prompt.txt of 512 of its tokens."""
    from vcc.engine.models.source import DEMO
    from vcc.engine.runtime.tokenizer import open_tokenizer

    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(DEMO / name, out / name)
    tokenizer = open_tokenizer(out / "tokenizer.json")
    text = " ".join((DEMO / "excerpt.txt").read_text(encoding="utf-8").split())
    low, high = 0, len(text)
    while low < high:  # the longest text that is not longer than 512 tokens
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high)
            if len(tokenizer.encode(text[:middle])) <= PROMPT_TOKENS
            else (low, middle - 1)
        )
    (out / "prompt.txt").write_text(text[:low], encoding="utf-8")
    return len(tokenizer.encode(text[:low]))


def _json(file: Path, content: object) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Write one model unless it is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size", choices=sorted(SHAPES))
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    if (options.out / "prompt.txt").exists():
        print(json.dumps({"seconds": 0.0, "there": True}))
        return
    print(json.dumps(write_model(options.size, options.out)))


if __name__ == "__main__":
    main()
