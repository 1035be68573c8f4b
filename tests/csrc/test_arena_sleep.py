"""Sleep, wake and discard: what is kept, what comes back, and that a failure changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.fake_cuda import Fake
from support.fake_cuda.fixtures import RawArena

from vcc.cache.errors import DeviceError, GraphError, UsageError, VccError

MIB = 1 << 20
ALL = ""


def filled(arena: RawArena) -> dict[str, tuple[int, int, int]]:
    """An allocation a tag: address, size and byte; and 64 MiB of KV cache."""
    sizes = {"weights": 9 * MIB + 12345, "kv_cache": 3 * MIB, "io": 1000, "mine": 2 * MIB}
    made = {}
    for byte, (tag, size) in enumerate(sizes.items(), start=1):
        made[tag] = (arena.filled(size, tag, byte), size, byte)
    base = arena.reserve_range(256 * MIB, 0, "kv_cache")
    arena.map_range(base, 32 * MIB, 64 * MIB)
    return made


def holds(arena: RawArena, block: tuple[int, int, int]) -> bool:
    address, size, byte = block
    return arena.read(address, size) == bytes([byte]) * size


def test_level_1_keeps_contents_and_drops_the_kv_cache(arena: RawArena) -> None:
    blocks = filled(arena)
    before = arena.available()
    arena.sleep(1, ALL)
    stats = arena.stats()
    assert stats["mapped"] == 0
    assert arena.available() == 1 << 30 > before
    assert all(tag["asleep"] for tag in stats["tags"].values())
    arena.wake(ALL)
    for tag in ("weights", "io", "mine"):
        assert holds(arena, blocks[tag])
    arena.write(blocks["kv_cache"][0], b"usable")
    assert arena.available() == before
    assert arena.stats()["host"] == 0


def test_level_2_keeps_only_buffers_and_io(arena: RawArena) -> None:
    blocks = filled(arena)
    arena.sleep(2, ALL)
    assert arena.stats()["host"] <= 4096
    arena.wake(ALL)
    assert holds(arena, blocks["io"])
    assert not holds(arena, blocks["weights"])
    arena.require("io", 1, "cannot replay")
    with pytest.raises(GraphError, match='cannot replay: the contents of "weights" were dropped'):
        arena.require("weights", 1, "cannot replay")
    arena.require("weights", 0, "cannot replay")
    arena.mark_filled("weights")
    arena.require("weights", 1, "cannot replay")


def test_what_was_written_after_a_drop_is_kept_without_being_told(arena: RawArena) -> None:
    blocks = filled(arena)
    arena.sleep(2, ALL)
    arena.wake(ALL)
    arena.write(blocks["weights"][0], b"again")
    arena.sleep(1, ALL)
    arena.wake(ALL)
    assert arena.read(blocks["weights"][0], 5) == b"again"


def test_tags_wake_one_by_one_and_what_must_not_wait_comes_along(arena: RawArena) -> None:
    filled(arena)
    arena.sleep(1, ALL)
    arena.wake("weights")
    tags = arena.stats()["tags"]
    assert {name for name, tag in tags.items() if tag["asleep"]} == {"kv_cache", "mine"}
    middle = arena.available()
    arena.wake("kv_cache\x1fmine")
    assert arena.available() < middle
    assert not any(tag["asleep"] for tag in arena.stats()["tags"].values())


def test_only_the_named_tags_fall_asleep_and_twice_is_once(arena: RawArena) -> None:
    blocks = filled(arena)
    arena.sleep(1, "weights")
    arena.sleep(1, "weights")
    assert arena.stats()["tags"]["weights"]["asleep"]
    assert holds(arena, blocks["kv_cache"])
    arena.wake("weights")
    arena.wake("weights")
    assert holds(arena, blocks["weights"])


def test_discard_forgets_also_what_sleeps(arena: RawArena) -> None:
    blocks = filled(arena)
    arena.sleep(1, "weights")
    version = arena.version()
    arena.discard("weights\x1fmine")
    assert arena.version() > version
    assert arena.stats()["host"] == 0
    with pytest.raises(GraphError, match="sleeps or was discarded"):
        arena.require("mine", 1, "cannot replay")
    arena.wake(ALL)
    assert not holds(arena, blocks["mine"])
    with pytest.raises(GraphError, match="were dropped"):
        arena.require("weights", 1, "cannot replay")


def test_a_sleeping_tag_takes_no_allocation_but_gives_back(arena: RawArena) -> None:
    blocks = filled(arena)
    arena.sleep(1, ALL)
    with pytest.raises(DeviceError, match='the memory of "weights" sleeps'):
        arena.allocate(1, "weights")
    arena.free(blocks["weights"][0])
    arena.wake(ALL)
    arena.trim()
    assert arena.stats()["tags"]["weights"]["mapped"] == 0
    assert holds(arena, blocks["mine"])


def test_a_range_can_be_freed_while_it_sleeps(arena: RawArena) -> None:
    base = arena.reserve_range(64 * MIB, 0, "mine")
    arena.map_range(base, 0, 64 * MIB)
    kept = arena.filled(MIB, "mine", 9)
    arena.sleep(1, ALL)
    arena.free_range(base)
    arena.wake(ALL)
    assert holds(arena, (kept, MIB, 9))


def test_another_level_is_refused(arena: RawArena) -> None:
    with pytest.raises(UsageError, match="cannot sleep at level 3"):
        arena.sleep(3, ALL)


def test_memory_taken_in_between_makes_wake_fail_and_a_retry_works(
    arena: RawArena, device: int
) -> None:
    blocks = filled(arena)
    other = RawArena(device)
    arena.sleep(1, ALL)
    hog = other.allocate(990 * MIB, "a")
    with pytest.raises(DeviceError, match="OUT_OF_MEMORY") as caught:
        arena.wake(ALL)
    assert "wake again" in caught.value.hint
    assert arena.stats()["mapped"] == 0
    assert all(tag["asleep"] for tag in arena.stats()["tags"].values())
    other.free(hog)
    other.trim()
    arena.wake(ALL)
    assert all(holds(arena, blocks[tag]) for tag in ("weights", "io", "mine"))
    other.close()


def failure_of(action: Callable[[], None]) -> str:
    """Why it fails; empty when it does not."""
    try:
        action()
    except VccError as error:
        return error.why
    return ""


def every_call_failed_once(fake: Fake, arena: RawArena, act: str, undo: str) -> int:
    """Fail each driver call of an action in turn; the number of calls it has.

    After each failure the state must be as before and the contents right; then the action is done
    and undone, so that the next failure meets the same state.
    """
    blocks = filled(arena)
    actions = {"sleep": lambda: arena.sleep(1, ALL), "wake": lambda: arena.wake(ALL)}
    if act == "wake":
        actions["sleep"]()
    for nth in range(1, 400):
        before = arena.stats()
        fake.clear()
        fake.fail("*", nth, code=1)
        failure = failure_of(actions[act])
        fake.clear()
        if not failure:
            return nth - 1
        assert "(1) at" in failure
        same = ("live", "mapped", "host")
        assert [arena.stats()[name] for name in same] == [before[name] for name in same], nth
        if act == "sleep":
            assert all(holds(arena, blocks[tag]) for tag in ("weights", "io", "mine")), nth
        actions[act]()
        actions[undo]()
        if undo == "wake":
            assert all(holds(arena, blocks[tag]) for tag in ("weights", "io", "mine")), nth
    raise AssertionError("no end of calls")


def test_a_wake_that_fails_at_any_call_leaves_everything_asleep(
    fake: Fake, arena: RawArena
) -> None:
    arena.ring(3, MIB)
    assert every_call_failed_once(fake, arena, "wake", "sleep") > 35


def test_a_sleep_that_fails_at_any_call_leaves_everything_awake(
    fake: Fake, arena: RawArena
) -> None:
    arena.ring(2, 4 * MIB)
    assert every_call_failed_once(fake, arena, "sleep", "wake") > 15


def test_nothing_is_tried_on_a_lost_device(fake: Fake, arena: RawArena) -> None:
    filled(arena)
    fake.fail("cuCtxSynchronize", code=719)
    with pytest.raises(DeviceError, match="cuCtxSynchronize"):
        arena.sleep(1, ALL)
    before = fake.count()
    for act in (lambda: arena.sleep(1, ALL), lambda: arena.wake(ALL), lambda: arena.trim()):
        with pytest.raises(DeviceError, match="device is lost"):
            act()
    assert fake.count() == before
