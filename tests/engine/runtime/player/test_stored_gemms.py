"""A boot with a GEMM store: what is offered and brought, what damage costs, and who waits."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.fake_cuda import Fake
from support.player_boot import boot, loaded
from support.player_case import launched, names
from support.step_tables import HIDDEN, TOKENS, toy_step
from support.supply_case import STORED, STORED_DIGEST, WORKSPACE, entry

from vcc.cache import bundle as bundles
from vcc.cache.errors import StorageError
from vcc.engine.events import NotedEvents
from vcc.engine.graphs.table.decode import decode
from vcc.engine.runtime.player import device as devices
from vcc.engine.runtime.player import stored_gemms
from vcc.engine.runtime.player.gemms import NoGemms
from vcc.engine.runtime.player.handle import Mode, Parts, PlayerHandle, Shape
from vcc.engine.runtime.player.runner import PlayerRunner
from vcc.engine.tune.gpu import Gpu
from vcc.engine.tune.index import SelfTest
from vcc.engine.tune.shapes import GemmShape, Measured
from vcc.engine.tune.store import GemmEntry, GemmStore
from vcc.engine.tune.wanted import products_of_tables

pytestmark = pytest.mark.usefixtures("double")

ROWS = (1, 2, 4, TOKENS)
"""Of the boot's graphs, and its largest step."""


def shape(rows: int) -> GemmShape:
    return GemmShape(rows, HIDDEN, HIDDEN, "bfloat16")


def gpu() -> Gpu:
    return Gpu.of_info(devices.open_device().info())


def store_of(weights: Path) -> GemmStore:
    return GemmStore(weights.parent / "store")


def recorded(store: GemmStore, *rows: int, version: int = 130100, spare: bytes = b"") -> None:
    entries = [
        GemmEntry(shape(one), entry(one), {STORED_DIGEST: STORED}, WORKSPACE) for one in rows
    ]
    if spare:  # makes a bundle of other bytes
        entries.append(GemmEntry(shape(3), spare, {STORED_DIGEST: STORED}))
    store.publish_products(gpu(), version, entries, SelfTest(True, len(rows)))


def measured(store: GemmStore, **routes: str) -> None:
    variants = products_of_tables([decode(toy_step(layers=2).data)]).variants
    found = [Measured(shape(int(rows[1:])), route, 2, 1) for rows, route in routes.items()]
    store.publish_choices(gpu(), 130100, variants, found)


def routes(runner: PlayerRunner, tokens: Sequence[int] = ROWS) -> dict[int, tuple[str, int]]:
    runner._parts.gemms.wait()
    found = {one: runner.player.gemms(one, 1)[0] for one in tokens}
    return {one: (told["route"], told["rows"]) for one, told in found.items()}


def report(runner: PlayerRunner) -> tuple[int, int, int, bool]:
    found = runner._parts.gemms.report
    return found.entries, found.choices, found.used, found.lacking


def bundle_of(store: GemmStore) -> Path:
    files = (store.root / "v1" / "cas").rglob("*")
    return max((one for one in files if one.is_file()), key=lambda one: one.stat().st_size)


DECODE = Parts.UNIFORM | Parts.SAMPLE


def test_products_of_the_store_are_taken_and_the_same_in_graphs_and_plain_launches(
    fake: Fake, weights: Path
) -> None:
    recorded(store_of(weights), *ROWS)
    runner = loaded(boot(weights))
    assert report(runner) == (4, 0, 4, True)  # of the second product nothing is recorded
    assert runner.wait_graphs().failed == 0
    assert routes(runner) == {rows: ("store", rows) for rows in ROWS}
    for tokens in (1, 2, 4):
        by_graph = launched(fake, runner.player, Shape(Mode.FULL, tokens, tokens, DECODE))
        plainly = launched(fake, runner.player, Shape(Mode.PLAIN, tokens, tokens, DECODE))
        assert by_graph == plainly
        assert "nvjet" in names(plainly)
    runner.close()


def test_entries_that_lost_to_a_kernel_are_neither_read_nor_loaded(
    fake: Fake, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(weights)
    recorded(store, *ROWS)
    measured(store, m1="triton", m2="cublaslt", m4="triton", m64="triton", m9="triton")
    read: list[int] = []
    kept = bundles.Bundle.read
    monkeypatch.setattr(
        bundles.Bundle,
        "read",
        lambda self, part, into: (read.append(part.size), kept(self, part, into))[1],
    )
    asked = boot(weights)
    runner = loaded(asked)
    assert report(runner) == (4, 5, 1, True)
    assert routes(runner) == {1: ("triton", 1), 2: ("store", 2), 4: ("triton", 4)} | {
        TOKENS: ("triton", TOKENS)
    }
    assert len(read) == 2, "the node tables once, and one cubin"
    assert any("4 from the GEMM store, 5 choices, 1 used" in note for note in notes(asked.events))
    runner.close()


def test_where_every_entry_lost_no_bundle_is_opened(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(weights)
    recorded(store, *ROWS)
    measured(store, **{f"m{rows}": "triton" for rows in ROWS})
    bundle_of(store).unlink()
    asked = boot(weights)
    runner = loaded(asked)
    runner.wait_graphs()
    assert report(runner)[2] == 0
    assert not runner._parts.gemms.report.trouble
    runner.close()


def notes(events: NotedEvents) -> list[str]:
    return [str(note) for note in events.notes]


def test_the_first_graphs_entries_are_brought_in_a_call_of_their_own(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(store_of(weights), *ROWS)
    calls: list[int] = []
    kept = PlayerHandle.supply_gemms
    monkeypatch.setattr(
        PlayerHandle,
        "supply_gemms",
        lambda self, supply: (calls.append(len(supply.entries)), kept(self, supply))[1],
    )
    runner = loaded(boot(weights))
    runner._parts.gemms.wait()
    assert calls == [1, 2, 1]  # the hot graph, the other graphs, what plain launches take
    runner.close()


@pytest.mark.parametrize("part", ["table", "cubin"])
def test_damage_costs_the_entries_and_is_told(
    weights: Path, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = store_of(weights)
    recorded(store, *ROWS)
    file = bundle_of(store)
    data = bytearray(file.read_bytes())
    data[0 if part == "table" else -1] ^= 1
    file.write_bytes(data)
    asked = boot(weights)
    runner = loaded(asked)
    assert runner.wait_graphs().failed == 0
    assert routes(runner) == {rows: ("triton", rows) for rows in ROWS}
    assert "is damaged" in runner._parts.gemms.report.trouble
    assert "is not used" in caplog.text
    runner.close()


def test_an_earlier_recording_stands_in_for_a_damaged_one(weights: Path) -> None:
    store = store_of(weights)
    recorded(store, *ROWS, version=130100)
    recorded(store, 1, 2, version=130200, spare=b"x" * 4096)
    file = bundle_of(store)
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    runner = loaded(boot(weights))
    assert routes(runner) == {rows: ("store", rows) for rows in ROWS}
    assert runner._parts.gemms.report.trouble
    runner.close()


def test_a_bundle_that_is_gone_costs_a_note(weights: Path) -> None:
    store = store_of(weights)
    recorded(store, *ROWS)
    bundle_of(store).unlink()
    asked = boot(weights)
    runner = loaded(asked)
    runner.wait_graphs()
    assert routes(runner)[1] == ("triton", 1)
    assert "is not in the store" in runner._parts.gemms.report.trouble
    runner.close()


def test_a_store_that_fails_while_it_is_read_holds_nobody_up(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(store_of(weights), *ROWS)
    monkeypatch.setattr(stored_gemms, "_cut", lambda offers: [[one] for one in offers])
    monkeypatch.setattr(stored_gemms.Recording, "table", broken_after(2))
    runner = loaded(boot(weights))
    assert runner.wait_graphs().failed == 0
    assert routes(runner)[1] == ("store", 1)
    assert routes(runner)[4] == ("triton", 4)
    assert "no memory" in runner._parts.gemms.report.trouble
    runner.close()


def broken_after(count: int) -> object:
    kept, calls = stored_gemms.Recording.table, []

    def table(self: stored_gemms.Recording, row: int) -> memoryview:
        calls.append(row)
        if len(calls) > count:
            raise StorageError("cannot read the store", "no memory")
        return kept(self, row)

    return table


def test_a_refused_entry_is_told(
    fake: Fake, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(weights)
    entries = [GemmEntry(shape(1), toy_step().data, {STORED_DIGEST: STORED}, WORKSPACE)]
    store.publish_products(gpu(), 130100, entries, SelfTest(True, 1))
    runner = loaded(boot(weights))
    assert runner.wait_graphs().failed == 0
    assert routes(runner)[1] == ("triton", 1)
    assert "other memory than its operands" in runner._parts.gemms.report.trouble
    runner.close()


def test_a_failed_self_test_offers_nothing_and_lacks_nothing(weights: Path) -> None:
    store_of(weights).publish_products(gpu(), 130100, [], SelfTest(False, 1, "3 bytes differ"))
    runner = loaded(boot(weights))
    assert report(runner) == (0, 0, 0, False)
    runner.close()


def test_a_store_that_cannot_be_read_costs_a_note(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(store_of(weights), *ROWS)

    def refuse(*words: object) -> None:
        raise StorageError("cannot read the store", "no rights")

    monkeypatch.setattr(stored_gemms.Recordings, "read", refuse)
    asked = boot(weights)
    runner = loaded(asked)
    assert isinstance(runner._parts.gemms, NoGemms)
    assert any("not used: cannot read the store" in note for note in notes(asked.events))
    runner.close()


def test_closing_a_runner_ends_the_bringing_and_gives_its_memory_back(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(store_of(weights), *ROWS)
    free = devices.open_device().free_memory
    hold, entered = threading.Event(), threading.Event()
    kept = stored_gemms.StoredGemms._bring

    def slow(self: stored_gemms.StoredGemms, *words: object) -> str:
        if entered.is_set():
            hold.wait(10)
        entered.set()
        return kept(self, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(stored_gemms.StoredGemms, "_bring", slow)
    runner = loaded(boot(weights))
    threading.Timer(0.05, hold.set).start()
    runner.close()
    assert devices.open_device().free_memory == free


def test_a_boot_that_fails_while_entries_come_gives_everything_back(
    fake: Fake, weights: Path
) -> None:
    recorded(store_of(weights), *ROWS)
    free = devices.open_device().free_memory
    for call in ("cuMemCreate", "cuGraphInstantiate", "cuMemHostAlloc"):
        fake.clear()
        fake.fail(call)
        with pytest.raises(Exception, match="OUT_OF_MEMORY"):
            loaded(boot(weights))
        assert devices.open_device().free_memory == free
