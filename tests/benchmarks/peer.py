"""The peer: the same decoder under torch.compile, process start to first token.

    python peer.py --model demo --prompt "It is a truth"      # weights of the checkpoint
    python peer.py --config DIR --tokens 16                      # random weights, for cold compiles

Whether it is cold or warm is decided by TORCHINDUCTOR_CACHE_DIR. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer

from vcc.engine.models.architectures import DecoderSpec, spec_of
from vcc.engine.models.bindings import bindings_of
from vcc.engine.models.decoder import Decoder
from vcc.engine.models.source import open_source
from vcc.engine.models.weights import load_weights
from vcc.engine.monitor import process_start
from vcc.engine.ops.register import load_ops

START = process_start()
BLOCK = 16


def from_checkpoint(name: str, dtype: torch.dtype) -> tuple[Decoder, Tokenizer]:
    """A model with its checkpoint's weights, as views where possible."""
    source = open_source(name)
    spec = spec_of(source.config)
    with torch.device("meta"):
        model = Decoder(spec, dtype)
    bindings = bindings_of(spec, source.tensors)
    weights, _ = load_weights(bindings, source.tensors, dtype)
    model.assign(weights)
    return model, Tokenizer.from_file(str(Path(source.directory) / "tokenizer.json"))


def at_random(directory: str, dtype: torch.dtype) -> Decoder:
    """A model of a config.json's sizes with random weights."""
    spec = spec_of(json.loads((Path(directory) / "config.json").read_text()))
    model = Decoder(spec, dtype)
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.02)
    return model


def step(
    ids: list[list[int]], spec: DecoderSpec, dtype: torch.dtype
) -> tuple[tuple[torch.Tensor, ...], list]:
    """Inputs of one prefill step of several prompts, and empty caches."""
    counts = [len(row) for row in ids]
    width = max(counts) // BLOCK + 1
    tables = [list(range(i * width, (i + 1) * width)) for i in range(len(ids))]
    slots = [
        tables[b][p // BLOCK] * BLOCK + p % BLOCK for b, n in enumerate(counts) for p in range(n)
    ]
    starts = [sum(counts[:i]) for i in range(len(counts) + 1)]
    flat = (
        [token for row in ids for token in row],
        [position for n in counts for position in range(n)],
        slots,
        tables,
        counts,
        starts,
        [end - 1 for end in starts[1:]],
    )
    blocks = len(ids) * width
    caches = [torch.zeros(spec.kv_shape(blocks, BLOCK), dtype=dtype) for _ in range(spec.layers)]
    return tuple(torch.tensor(values, dtype=torch.int32) for values in flat), caches


def mark(inputs: tuple[torch.Tensor, ...], batched: bool) -> None:
    """T is dynamic, and B too in a batch: what an artifact covers, in one compile."""
    for tensor in inputs[:3]:
        torch._dynamo.mark_dynamic(tensor, 0)
    if batched:
        for tensor in inputs[3:]:
            torch._dynamo.mark_dynamic(tensor, 0)


def main() -> None:
    """Compile, run one step, print when its first token was there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--prompt")
    parser.add_argument("--config")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    torch.set_grad_enabled(False)
    load_ops()
    if options.config:
        model = at_random(options.config, dtype)
        ids = [list(range(1, options.tokens + 1))] * 2
    else:
        model, tokenizer = from_checkpoint(options.model, dtype)
        ids = [tokenizer.encode(options.prompt).ids]
    inputs, caches = step(ids, model.spec, dtype)
    mark(inputs, batched=len(ids) > 1)
    compiled = torch.compile(model, fullgraph=True)
    token = int(compiled(*inputs, caches)[0].argmax())
    print(json.dumps({"first_token_seconds": time.perf_counter() - START, "token": token}))


if __name__ == "__main__":
    main()
