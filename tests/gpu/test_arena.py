"""vcc.Arena under real torch code on a device: rows S1 to S8 of sleeping and waking."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import vcc

if TYPE_CHECKING:
    from vcc.engine.arena import Arena

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
MIB = 1 << 20


@pytest.fixture
def arena() -> Iterator[Arena]:
    with vcc.Arena() as made:
        yield made


def ones(arena: Arena, tag: str, mib: int, value: float) -> object:
    """A bf16 tensor under a tag."""
    with arena.tag(tag):
        return torch.full((mib * MIB // 2,), value, dtype=torch.bfloat16, device="cuda")


def test_s1_offloaded_tensors_come_back(arena: Arena) -> None:
    x, y = ones(arena, "mine", 64, 1.0), ones(arena, "mine", 64, 1.0)
    z = torch.full_like(x, 1.0)
    addresses = x.data_ptr(), y.data_ptr()
    before = arena.available()
    arena.sleep()
    assert arena.available() >= before + 120 * MIB
    arena.wake()
    assert (x.data_ptr(), y.data_ptr()) == addresses
    assert bool(((x + y + z) == 3.0).all())


def test_s2_dropped_tensors_keep_their_addresses(arena: Arena) -> None:
    kv, place = ones(arena, "kv_cache", 64, 5.0), 0
    place = kv.data_ptr()
    arena.sleep()
    arena.wake()
    assert kv.data_ptr() == place
    kv.fill_(2.0)
    assert float(kv.float().mean()) == 2.0


def test_s3_a_captured_graph_replays_after_sleep_and_refill(arena: Arena) -> None:
    with arena.tag("weights"):
        weight = torch.randn(512, 512, device="cuda")
        x = torch.zeros(8, 512, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            x @ weight
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=arena.torch_pool("workspace").id, stream=side):
        y = torch.relu(x @ weight)
    for _ in range(3):
        arena.sleep()
        arena.wake()
        given = torch.randn(8, 512, device="cuda")
        x.copy_(given)
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(y, torch.relu(given @ weight))


def test_s4_wake_without_memory_fails_and_a_retry_works(arena: Arena) -> None:
    x = ones(arena, "weights", 2048, 3.0)
    arena.sleep()
    free, _ = torch.cuda.mem_get_info()
    hog = torch.empty(free - 512 * MIB, dtype=torch.uint8, device="cuda")
    with pytest.raises(RuntimeError, match="OUT_OF_MEMORY"):
        arena.wake()
    assert arena.stats.tags["weights"].asleep
    del hog
    torch.cuda.empty_cache()
    arena.wake()
    assert bool((x == 3.0).all())


def test_s5_s8_tags_come_back_one_by_one(arena: Arena) -> None:
    x, kv = ones(arena, "weights", 256, 3.0), ones(arena, "kv_cache", 256, 4.0)
    io = ones(arena, "io", 2, 5.0)
    arena.sleep()
    asleep = arena.available()
    arena.wake(["weights"])
    tags = arena.stats.tags
    assert (tags["weights"].asleep, tags["kv_cache"].asleep, tags["io"].asleep) == (0, 1, 0)
    middle = arena.available()
    assert middle <= asleep - 256 * MIB
    arena.wake(["kv_cache"])
    assert arena.available() <= middle - 256 * MIB
    kv.zero_()
    assert bool((x == 3.0).all() and (io == 5.0).all())


def test_s6_level_2_and_reload_gives_the_same_weights(arena: Arena) -> None:
    with arena.tag("weights"):
        layer = torch.nn.Linear(1024, 1024, device="cuda")
    with arena.tag("buffers"):
        scale = torch.full((1024,), 0.5, device="cuda")
    saved = {name: value.cpu() for name, value in layer.state_dict().items()}
    x = torch.randn(4, 1024, device="cuda")
    wanted = layer(x) * scale
    arena.sleep(level=1)
    arena.wake()
    assert torch.equal(layer(x) * scale, wanted)
    arena.sleep(level=2)
    arena.wake()
    assert not arena.stats.tags["weights"].filled
    layer.load_state_dict(saved)
    arena.mark_filled("weights")
    assert torch.equal(layer(x) * scale, wanted)


def test_memory_is_given_back_when_tensors_and_arena_are_gone() -> None:
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before, _ = torch.cuda.mem_get_info()
    with vcc.Arena() as made:
        x = ones(made, "weights", 512, 1.0)
        del x
    torch.cuda.empty_cache()
    after, _ = torch.cuda.mem_get_info()
    assert after >= before - 32 * MIB


def test_random_allocations_under_load_stay_apart(arena: Arena) -> None:
    """Tensors of many sizes, filled and checked on the device, with trims between."""
    draw, held = random.Random(5), {}
    for step in range(400):
        if held and draw.random() < 0.45:
            value = draw.choice(list(held))
            assert bool((held.pop(value) == value).all())
        else:
            size = int(2 ** draw.uniform(4, 23))
            with arena.tag(draw.choice(("a", "b"))):
                held[step] = torch.full((size,), step, dtype=torch.int32, device="cuda")
        if step % 50 == 49:
            arena.trim()
    arena.sleep()
    arena.wake()
    assert all(bool((tensor == value).all()) for value, tensor in held.items())


def test_a_process_may_end_with_tensors_asleep() -> None:
    code = (
        "import torch, vcc\n"
        "arena = vcc.Arena()\n"
        "with arena.tag('weights'):\n"
        "    x = torch.ones(1 << 20, device='cuda')\n"
        "arena.sleep()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
