"""What a runner has for requests: memory of their blocks, and slots of their adapters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vcc.engine.models.lora.spec import NO_SLOT
from vcc.engine.runtime.batch import Chunk
from vcc.engine.runtime.no_adapters import no_adapters
from vcc.engine.runtime.scheduler import Scheduler

if TYPE_CHECKING:
    from vcc.engine.runtime.adapters import Adapters
    from vcc.engine.runtime.batch import StepRunner
    from vcc.engine.runtime.player.cache import CacheMemory
    from vcc.engine.runtime.requests import Request
    from vcc.engine.runtime.scheduler import LiveSequence, Scheduled


def adapters_in(runner: object) -> Adapters | None:
    """The adapters of a runner; None for code that takes none."""
    found: Adapters | None = getattr(runner, "adapters", None)
    return found


def check_loras(runner: object, requests: Iterable[Request]) -> None:
    """Refuse requests for adapters that are not loaded.

    Raises:
        UsageError: no such adapter, or the code takes none.
    """
    adapters = adapters_in(runner)
    for name in dict.fromkeys(one.lora for one in requests if one.lora):
        if adapters is None:
            raise no_adapters()
        adapters.check(name)


def scheduler_of(runner: StepRunner, requests: Sequence[Request] = ()) -> Scheduler:
    """A queue for a runner, whose adapters and KV blocks stay while its requests are under way.

    Raises:
        UsageError: a prompt that cannot be answered, or for an adapter that is not loaded.
    """
    cache: CacheMemory | None = getattr(runner, "cache", None)
    made = Scheduler(runner.limits, requests, cache)
    check_loras(runner, requests)
    for one in (adapters_in(runner), cache):
        if one is not None:
            one.watch(made)
    return made


def chunks_of(runner: object, step: Sequence[Scheduled]) -> list[Chunk]:
    """The rows of a step; adapters without a slot get one, which writes it.

    Raises:
        UsageError: an adapter is gone, or a step is under way.
        AdapterUnreadable: the file of one is not as it was loaded; nothing has run.
    """
    slots = slots_of(runner, [one.sequence for one in step])
    return [replace(one.chunk, slot=slots[one.sequence.request.lora]) for one in step]


def slots_of(runner: object, sequences: Iterable[LiveSequence]) -> Mapping[str, int]:
    """The slot of each adapter of these sequences by name; errors as in `chunks_of`."""
    adapters, names = adapters_in(runner), {one.request.lora for one in sequences}
    if adapters is None or names == {""}:
        return {"": NO_SLOT}
    return adapters.slots_for(sorted(names))
