"""The peer of bench_forwards.py: the same checkpoint in torch on the GPU, in one of three ways.

    eager      the model of transformers, with its own choice of attention
    default    torch.compile of it for these sizes
    overhead   torch.compile(mode="reduce-overhead"), which makes CUDA graphs

Prints one JSON line. `--first WAY` only measures from process start to the first answer; whether a
compile is warm is decided by TORCHINDUCTOR_CACHE_DIR. Without it the ways are compiled, what the
numbers rule needs is written, and calls are timed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vcc.engine.monitor import process_start

START = process_start()

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from torch import Tensor  # noqa: E402

IMPORTED = time.perf_counter()

import calls  # noqa: E402
from forward_models import KINDS, Inputs  # noqa: E402

MODES: Mapping[str, str | None] = {
    "eager": None,
    "default": "default",
    "overhead": "reduce-overhead",
}
Run = Callable[[], list[Tensor]]


def load(place: Path, name: str, **more: Any) -> Any:
    """The model on the GPU."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    kind = getattr(transformers, KINDS[name].model)
    return kind.from_pretrained(place, **more).eval().cuda()


def on_device(inputs: Inputs, dtype: torch.dtype) -> dict[str, Tensor]:
    """Inputs on the GPU, those of floats rounded to bf16 and of this dtype."""
    found = {name: torch.from_numpy(value).cuda() for name, value in inputs.items()}
    return {
        name: one.bfloat16().to(dtype) if one.is_floating_point() else one
        for name, one in found.items()
    }


def answers(model: Callable[..., Any], inputs: Mapping[str, Tensor]) -> list[Tensor]:
    """The tensors of an answer, in order."""
    return [one for one in model(**inputs).values() if isinstance(one, Tensor)]


def write(place: Path, found: list[Tensor]) -> None:
    """Outputs in fp32 by number."""
    np.savez(place, **{str(n): one.float().cpu().numpy() for n, one in enumerate(found)})


def references(place: Path, name: str, inputs: Inputs, folder: Path) -> None:
    """What the numbers rule compares with: fp32 without TF32, and plain attention in bf16."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    plain = {} if name == "resnet" else {"attn_implementation": "eager"}
    for side, dtype in (("exact", torch.float32), ("peer", torch.bfloat16)):
        model = load(place, name, dtype=dtype, **plain)
        write(folder / f"{side}.npz", answers(model, on_device(inputs, dtype)))


def compiled(model: Any, way: str) -> Any:
    """The model in one of the ways; nothing is compiled yet."""
    mode = MODES[way]
    return model if mode is None else torch.compile(model, fullgraph=True, dynamic=False, mode=mode)


def timed(run: Run, whole: Run, seconds: float) -> dict[str, Any]:
    """Microseconds of a call: waited for, in a row without waiting, and from host to host."""
    waited = calls.timed(lambda: (run(), torch.cuda.synchronize()), seconds)
    count = max(5, int(seconds * 1e6 / waited.us))
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        run()
    end.record()
    torch.cuda.synchronize()
    return {
        "call_us": waited.us,
        "rounds": waited.rounds,
        "in_a_row_us": start.elapsed_time(end) * 1e3 / count,
        "host_us": calls.timed(whole, seconds).us,
    }


def first(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds from process start to the first answer on the host."""
    torch.cuda.init()
    model = load(options.model, options.kind, dtype=torch.bfloat16)
    run = compiled(model, options.first)
    inputs = on_device(KINDS[options.kind].inputs(options.batch), torch.bfloat16)
    found = [one.cpu() for one in answers(run, inputs)]
    seconds = time.perf_counter() - START
    return {"seconds": round(seconds, 4), "imports": round(IMPORTED - START, 4), "of": len(found)}


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Every way, compiled before any is timed."""
    from peer_model import held, skipped  # a first answer does without

    inputs = KINDS[options.kind].inputs(options.batch)
    references(options.model, options.kind, inputs, options.answers)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    model = load(options.model, options.kind, dtype=torch.bfloat16)
    given = on_device(inputs, torch.bfloat16)
    runs: dict[str, tuple[Run, Run]] = {}
    found: dict[str, Any] = {}
    for way in options.ways:
        torch._dynamo.reset()
        call = compiled(model, way)

        def run(call: Any = call) -> list[Tensor]:
            return answers(call, given)

        def whole(call: Any = call) -> list[Tensor]:
            return [one.cpu() for one in answers(call, on_device(inputs, torch.bfloat16))]

        start = time.perf_counter()
        try:
            for _ in range(3):
                last = run()
            write(options.answers / f"{way}.npz", last)
        except Exception as error:
            found[way] = {"error": f"{type(error).__name__}: {error}"[:300]}
            continue
        found[way] = {"compile_seconds": round(time.perf_counter() - start, 2)}
        runs[way] = run, whole
    found["graphs_skipped"] = skipped()
    if options.hold is not None:
        held(options.hold)
    for way, (run, whole) in runs.items():
        found[way] |= timed(run, whole, options.seconds)
    return found


def main() -> None:
    """Do what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--kind", choices=sorted(KINDS), required=True)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--ways", nargs="*", default=list(MODES))
    parser.add_argument("--first", choices=list(MODES))
    parser.add_argument("--answers", type=Path, help="a folder for outputs")
    parser.add_argument("--seconds", type=float, default=0.4, help="of each timing")
    parser.add_argument("--hold", type=Path, help="a folder: leave `ready`, wait for `go`")
    options = parser.parse_args()
    with torch.no_grad():
        print(json.dumps(first(options) if options.first else measured(options)))


if __name__ == "__main__":
    main()
