"""The peer: the same decoder in torch on the GPU, with the same attention, in one of three ways.

    eager      plain torch, one CUDA graph a decode size
    regional   each layer under torch.compile (one compile for all), one CUDA graph a decode size
    whole      torch.compile(mode="reduce-overhead") over the model, which makes its own graphs

`regional` compiles in seconds at any depth and gives `whole`'s kernels; `whole` is what users type,
and takes minutes when cold. Whether a compile is warm is decided by TORCHINDUCTOR_CACHE_DIR.
Prints one JSON line. Without torch this file cannot be used: it runs in processes of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcc.engine.monitor import process_start

START = process_start()

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

IMPORTED = time.perf_counter()

from common import TARGET  # noqa: E402
from peer_ops import CudaOps  # noqa: E402

from vcc.engine.models.bindings import bindings_of  # noqa: E402
from vcc.engine.models.decoder import Decoder  # noqa: E402
from vcc.engine.models.source import open_source  # noqa: E402
from vcc.engine.models.weights import load_weights  # noqa: E402

BLOCK = 16
Run = Callable[[], Tensor]


@dataclass
class Clock:
    """Seconds of each stage since the process started."""

    stages: dict[str, float]
    last: float

    def mark(self, name: str) -> None:
        """Close a stage, with everything on the GPU done."""
        torch.cuda.synchronize()
        now = time.perf_counter()
        self.stages[name] = self.stages.get(name, 0.0) + now - self.last
        self.last = now


def load(directory: Path) -> Decoder:
    """The model with its weights on the GPU; each checkpoint tensor is copied once."""
    source = open_source(str(directory))
    with torch.device("meta"):
        model = Decoder(source.spec, torch.bfloat16)
    weights, _ = load_weights(bindings_of(source.spec), source.tensors, torch.bfloat16)
    moved = {id(tensor): tensor for tensor in weights.values()}
    moved = {key: tensor.cuda() for key, tensor in moved.items()}  # tied ones once
    model.assign({name: moved[id(tensor)] for name, tensor in weights.items()})
    return model.cuda().eval()


@dataclass(frozen=True)
class Step:
    """Fixed inputs of one step of `seqs` sequences, `tokens` new ones each, after `past`."""

    inputs: tuple[Tensor, ...]

    @classmethod
    def of(cls, tokens: int, seqs: int, past: int, table: int) -> Step:
        """Every sequence has blocks of its own; ids are any."""
        per = -(-(past + tokens) // BLOCK)
        rows = [[b * per + i if i < per else 0 for i in range(table)] for b in range(seqs)]
        positions = [past + i for _ in range(seqs) for i in range(tokens)]
        owners = [b for b in range(seqs) for _ in range(tokens)]
        slots = [
            rows[b][p // BLOCK] * BLOCK + p % BLOCK for b, p in zip(owners, positions, strict=True)
        ]
        starts = [b * tokens for b in range(seqs + 1)]
        ids = [(7 * i + 11) % 2048 for i in range(tokens * seqs)]
        ends = [start - 1 for start in starts[1:]]
        values = (ids, positions, slots, rows, [past + tokens] * seqs, starts, ends)
        return cls(tuple(torch.tensor(v, dtype=torch.int32, device="cuda") for v in values))


@dataclass(frozen=True)
class Captured:
    """A captured step. The graph reads its inputs by address, so they live as long as it does."""

    step: Step
    graph: Any
    out: Tensor

    def __call__(self) -> Tensor:
        """Replay; the output is the same memory each time."""
        self.graph.replay()
        return self.out


@dataclass
class Peer:
    """A model, its caches, and one way of running it."""

    way: str
    model: Decoder
    caches: list[Tensor]
    call: Callable[..., Tensor]

    @classmethod
    def of(cls, way: str, model: Decoder, blocks: int) -> Peer:
        """Allocate the caches and wrap the model; nothing is compiled yet."""
        torch._dynamo.config.recompile_limit = 64
        spec = model.spec
        shape = spec.kv_shape(blocks, BLOCK)
        caches = [
            torch.zeros(shape, dtype=torch.bfloat16, device="cuda") for _ in range(spec.layers)
        ]
        call: Any = model
        if way == "regional":
            for layer in model.layers:
                layer.compile(fullgraph=True)
        if way == "whole":
            for cache in caches:
                torch._dynamo.mark_static_address(cache)
            call = torch.compile(model, fullgraph=True, dynamic=False, mode="reduce-overhead")
        return cls(way, model, caches, call)

    def runner(self, step: Step, *, graph: bool) -> Run:
        """A function that runs the step; warmed up, and captured where this way needs it."""

        def plain() -> Tensor:
            return self.call(*step.inputs, self.caches)

        for _ in range(3):
            plain()
        torch.cuda.synchronize()
        if self.way == "whole" or not graph:
            return plain
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = plain()
        return Captured(step, graph, out)


def timed(run: Run, times: int) -> dict[str, float]:
    """Microseconds of one step: by events over all, and by the wall with the token read back."""
    for _ in range(5):
        run()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        run()
    end.record()
    torch.cuda.synchronize()
    device = start.elapsed_time(end) * 1e3 / times
    walls = []
    for _ in range(times):
        before = time.perf_counter()
        run().argmax(-1).tolist()
        walls.append(1e6 * (time.perf_counter() - before))
    return {"device_us": device, "with_token_us": statistics.median(walls)}


def main() -> None:
    """Boot the peer as a server would, then time what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--way", choices=("eager", "regional", "whole"), required=True)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--decode", type=int, nargs="*", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--past", type=int, default=512)
    parser.add_argument("--prefill", type=int, nargs="*", default=[])
    parser.add_argument("--times", type=int, default=0, help="timed steps; 0 only boots")
    parser.add_argument("--hold", type=Path, help="a folder: leave `ready`, wait for `go`")
    options = parser.parse_args()
    with torch.no_grad():
        print(json.dumps(measure(options)))


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Stages, first token, and the timings."""
    clock = Clock({"process_and_torch": IMPORTED - START}, IMPORTED)
    torch.cuda.init()
    clock.mark("context")
    table = -(-max(4096, options.past + 1) // BLOCK)
    ops = CudaOps(TARGET, BLOCK, table)
    model = load(options.model)
    clock.mark("weights")
    seqs = max([1, *options.decode])
    blocks = seqs * -(-(options.past + 1) // BLOCK) + table
    peer = Peer.of(options.way, model, blocks)
    found: dict[str, object] = {"way": options.way}
    prompt = None
    if options.prompt_tokens:
        prompt = peer.runner(Step.of(options.prompt_tokens, 1, 0, table), graph=False)
        clock.mark("compile_prefill")
    decode = {
        b: peer.runner(Step.of(1, b, options.past, table), graph=True) for b in options.decode
    }
    clock.mark("compile_and_capture_decode")
    if prompt is not None:
        found["token"] = int(prompt().argmax(-1)[0])
        clock.mark("first_token")
        found["first_token_seconds"] = round(clock.last - START, 4)
    prefill = {
        n: peer.runner(Step.of(n, 1, 0, table), graph=True)
        for n in (options.prefill if options.times else ())
    }
    clock.mark("compile_and_capture_prefill")
    found["stages"] = {name: round(value, 4) for name, value in clock.stages.items()}
    found["graphs_skipped"] = skipped()
    if options.hold is not None:
        held(options.hold)
    if options.times:
        fewer = max(5, options.times // 10)
        found["decode"] = {b: timed(run, options.times) for b, run in decode.items()}
        found["prefill"] = {n: timed(run, fewer) for n, run in prefill.items()}
    del ops
    return found


def skipped() -> int:
    """Times that torch's own graphs gave way to plain launches: a peer at half its speed."""
    return int(torch._dynamo.utils.counters["inductor"]["cudagraph_skips"])


def held(folder: Path) -> None:
    """Say that everything is compiled, and time nothing before the others are done."""
    (folder / "ready").touch()
    while not (folder / "go").exists():
        time.sleep(0.05)


if __name__ == "__main__":
    main()
