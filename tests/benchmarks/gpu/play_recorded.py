"""One side of bench_recorder.py: python play_recorded.py torch|ours FOLDER MODEL SHAPES.

torch: eager kernels captured into torch's own graphs, no CUPTI in the process; leaves times.
ours: the recorded tables of FOLDER, replayed without torch; leaves times too.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

REPLAYS, ROUNDS = 200, 7


def settled(model: str, shapes: str):
    from vcc.cli.request import ModelOptions, build_request
    from vcc.engine.request import settle

    limits = {"max_model_len": 512, "max_num_seqs": 64}
    asked = ModelOptions(
        model, target="sm_90", mode="full", compile="none", dtype="bf16", shapes=shapes, **limits
    )
    return settle(build_request(asked))


def by_torch(model: str, shapes: str) -> dict[str, float]:
    import torch

    from vcc.engine.graphs.recorder import samples
    from vcc.engine.graphs.recorder.plan import WEIGHTS
    from vcc.engine.graphs.recorder.subjects import subject_of
    from vcc.engine.graphs.table.types import Role
    from vcc.engine.torch_shim.profiles import PROFILES

    subject = subject_of(settled(model, shapes), PROFILES["sm_90"])
    recording = subject.recording
    tensors = {}
    for region, slot in recording.slots():
        dtype = getattr(torch, slot.dtype)
        if slot.shares:
            tensors[slot.name] = tensors[slot.shares]
        elif region == WEIGHTS and slot.role is Role.WEIGHT:
            tensors[slot.name] = (torch.randn(slot.shape, device="cuda") / 32).to(dtype)
        else:
            tensors[slot.name] = torch.zeros(slot.shape, dtype=dtype, device="cuda")
    for name, data in subject.constants.items():
        tensors[name].copy_(torch.from_numpy(data))
    times, stream = {}, torch.cuda.Stream()
    with torch.no_grad():
        run = subject.make(tensors)
        for descriptor in recording.descriptors:
            batch = samples.batch(recording, descriptor)
            inputs = {name: torch.from_numpy(one).cuda() for name, one in batch.items()}
            with torch.cuda.stream(stream):
                for _ in range(2):
                    run(descriptor, inputs)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                # The recorded graph copies its output to a buffer as well.
                tensors["logits"][: descriptor.seqs].copy_(run(descriptor, inputs))
            times[descriptor.file] = timed(graph)
    return times


def timed(graph) -> float:
    """Microseconds of a replay."""
    import torch

    found = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(REPLAYS):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) * 1e3 / REPLAYS)
    return statistics.median(found)


def by_us(folder: Path) -> dict[str, float]:
    from contextlib import ExitStack

    from vcc.engine.graphs.recorder.calls import open_driver
    from vcc.engine.graphs.recorder.check_process import RECORDING, State
    from vcc.engine.graphs.recorder.plan import Recording
    from vcc.engine.graphs.recorder.replay import DeviceBytes, Functions, Replay
    from vcc.engine.graphs.table.decode import decode

    open_driver(0)
    recording = Recording.parse((folder / RECORDING).read_text())
    tables = {d: decode((folder / f"{d.file}.table").read_bytes()) for d in recording.descriptors}
    functions = Functions({file.name: file.read_bytes() for file in (folder / "cubin").iterdir()})
    times = {}
    with ExitStack() as stack:
        sizes = [max(int(t.regions[i].size) for t in tables.values()) for i in range(4)]
        memory = [stack.enter_context(DeviceBytes(size)).address for size in sizes]
        state = State(recording, memory, sizes, stack)
        state.fill_weights(folder)
        for descriptor, table in tables.items():
            replay = Replay(functions)
            replay.add(table, memory, {})
            replay.instantiate()
            state.reset(descriptor)
            replay.launch(2)
            found = [replay.launch(REPLAYS) for _ in range(ROUNDS)]
            times[descriptor.file] = statistics.median(found)
            replay.close()
    if "torch" in sys.modules:
        raise SystemExit("torch is in the process that replays")
    return times


if __name__ == "__main__":
    side, place, name, sizes = sys.argv[1:5]
    answer = by_torch(name, sizes) if side == "torch" else by_us(Path(place))
    print(json.dumps(answer))
