"""Booting a GPU artifact on the libcuda double: weights, memory, host rules, nothing heavy."""

from __future__ import annotations

import gc
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.fake_cuda import Fake
from support.player_boot import RULES, boot, loaded
from support.player_runner import batch
from support.step_tables import (
    CUBIN,
    HIDDEN,
    SEQS,
    TOKENS,
    VOCAB,
    toy_step,
)

from vcc.cache.errors import DeviceError, GraphError, IntegrityError, ModelError
from vcc.engine.config.kv_memory import KvMemory
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.encode import encode
from vcc.engine.models.tensor_info import TensorInfo
from vcc.engine.runtime.player import device as devices

pytestmark = pytest.mark.usefixtures("double")


def test_weights_memory_and_graphs_are_there(weights: Path) -> None:
    asked = boot(weights)
    runner = loaded(asked)
    try:
        runner.wait_graphs()
        assert runner.gate.captures == 3 + 3 * 3
        layout = runner._parts.layout
        data = runner.player.read(layout.weights[0], 2 * VOCAB * HIDDEN)
        assert data.view(np.uint16).tolist() == list(range(VOCAB * HIDDEN))
        assert runner.limits.num_blocks == 3 + 4  # of the two sequences to come
        phases, seconds = asked.ledger.account()
        assert {"context", "modules", "memory", "weights", "graphs"} <= phases.keys()
        assert sum(phases.values()) == pytest.approx(seconds)
        assert asked.ledger.beside.keys() == {"context", "weights"}
        assert runner.lacking, "nothing was ever recorded at this site"
    finally:
        runner.close()


def test_a_boot_is_given_back_whole_when_it_fails(fake: Fake, weights: Path) -> None:
    free = devices.open_device().free_memory
    for call in ("cuMemCreate", "cuModuleLoadData", "cuGraphInstantiate", "cuMemHostAlloc"):
        fake.clear()
        fake.fail(call)
        with pytest.raises(DeviceError, match="OUT_OF_MEMORY"):
            loaded(boot(weights))
        assert devices.open_device().free_memory == free


def test_a_runner_that_nobody_uses_gives_its_memory_back(weights: Path) -> None:
    free = devices.open_device().free_memory
    runner = loaded(boot(weights))
    assert devices.open_device().free_memory < free
    del runner
    gc.collect()
    assert devices.open_device().free_memory == free


def test_discarded_weights_are_read_again(weights: Path) -> None:
    runner = loaded(boot(weights))
    home, size = runner._parts.layout.weights[0], 2 * VOCAB * HIDDEN
    before = runner.player.read(home, size).tolist()
    runner.arena.discard(["weights"])
    with pytest.raises(GraphError, match="weights"):
        runner.step(batch(2))
    runner.arena.wake()
    with pytest.raises(GraphError, match="weights"):
        runner.step(batch(2))
    runner.reload()
    assert runner.player.read(home, size).tolist() == before
    runner.step(batch(2))
    runner.close()


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"arch": "sm_80"}, "for sm_80"),
        ({"driver": "99010"}, "99.1"),
    ],
)
def test_another_device_or_an_older_driver_is_refused(
    weights: Path, rules: dict[str, str], words: str
) -> None:
    with pytest.raises(DeviceError, match=words) as told:
        loaded(boot(weights, rules=RULES | rules))
    assert told.value.why
    assert told.value.hint


def test_less_memory_than_the_weights_need_is_told_in_bytes(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcc.engine.arena.Arena.available", lambda self: 1000)
    with pytest.raises(DeviceError, match=f"need {2 * VOCAB * HIDDEN} bytes") as told:
        loaded(boot(weights))
    assert "1000 are free" in told.value.why


@pytest.mark.parametrize(("memory", "blocks"), [("512B", 2), ("1KiB", 4), ("1GiB", 7), ("0.9", 7)])
def test_the_kv_cache_gets_what_it_may_have(weights: Path, memory: str, blocks: int) -> None:
    """A block of the toy takes 128 bytes in each of two layers."""
    runner = loaded(boot(weights, kv_memory=KvMemory.parse(memory)))
    assert runner.limits.num_blocks == blocks
    runner.close()


def test_no_memory_for_one_block_is_told(weights: Path) -> None:
    with pytest.raises(DeviceError, match="256 bytes") as told:
        loaded(boot(weights, kv_memory=KvMemory(bytes=100)))
    assert "--kv-memory" in told.value.hint


def test_wrong_weights_are_named_and_nothing_is_kept(weights: Path) -> None:
    free = devices.open_device().free_memory
    other = TensorInfo("bfloat16", (VOCAB, HIDDEN + 1), weights, 0, 2)
    whole = TensorInfo("int32", (VOCAB, HIDDEN), weights, 64, 64 + 4 * VOCAB * HIDDEN)
    for tensors, said in (
        (
            {"stored": other},
            f"w is [{VOCAB}, {HIDDEN + 1}], the artifact takes [{VOCAB}, {HIDDEN}]",
        ),
        ({"stored": whole}, "w is int32, the artifact takes bfloat16"),
        ({}, "stored"),
    ):
        with pytest.raises(ModelError) as told:
            loaded(boot(weights, tensors=tensors))
        assert told.value.what == "the weights are not what the artifact was built for"
        assert said in told.value.why
        gc.collect()
        assert devices.open_device().free_memory == free


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("logits", {"shape": (1, VOCAB)}, "logits is output"),
        ("logits", {"shape": (VOCAB,)}, "logits is output"),
        ("logits", {"dtype": "int16"}, "logits is output int16"),
        ("seq_lens", {"dtype": "float32"}, "seq_lens is input float32"),
        ("input_ids", {"shape": (1,)}, "input_ids is input int32 [1]"),
        ("block_table", {"shape": ("B", 1)}, "block_table is input"),
        ("positions", {"name": "position"}, "positions"),
    ],
)
def test_a_table_that_is_no_step_of_these_limits_is_refused(
    weights: Path, name: str, fields: dict[str, object], said: str
) -> None:
    """Verified bytes and a sound table: what is missing is that a step can be written into it."""
    table = decode(toy_step(layers=2).data)
    tensors = tuple(replace(one, **fields) if one.name == name else one for one in table.tensors)
    hostile = encode(replace(table, tensors=tensors))
    with pytest.raises(IntegrityError) as told:
        loaded(boot(weights, blobs={"table/step": hostile}))
    assert said in str(told.value)


def test_limits_beyond_the_table_are_refused(weights: Path) -> None:
    table = decode(toy_step(layers=2).data)
    for index, most in ((0, TOKENS), (1, SEQS)):
        symbols = list(table.symbols)
        symbols[index] = replace(symbols[index], high=most - 1)
        hostile = encode(replace(table, symbols=tuple(symbols)))
        with pytest.raises(IntegrityError, match="artifact's limits"):
            loaded(boot(weights, blobs={"table/step": hostile}))


def test_a_cubin_under_another_name_is_refused(weights: Path) -> None:
    with pytest.raises(IntegrityError, match="another file"):
        loaded(boot(weights, blobs={f"cubin/{'0' * 64}": CUBIN}))


def test_a_damaged_table_is_refused(weights: Path) -> None:
    with pytest.raises(IntegrityError):
        loaded(boot(weights, blobs={"table/step": toy_step().data[:-8]}))


HEAVY = """
import sys
import vcc.engine.answer, vcc.engine.session, vcc.engine.loading, vcc.cli.main, vcc.cli.ways
import vcc.engine.runtime.boot as boot
boot.LOADERS[boot.Loader.PLAYER]()
print([name for name in ("torch", "triton", "transformers", "sympy") if name in sys.modules])
"""


def test_the_way_to_the_player_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HEAVY], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "[]", done.stderr
