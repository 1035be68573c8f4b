"""One step captured by torch: as one graph, or as one for each part between breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from vcc.cache.errors import GraphError, VccError
from vcc.engine.graphs.recorder.parts import Part, Parting
from vcc.engine.graphs.recorder.plan import Descriptor
from vcc.engine.torch_shim.dispatch_mode import heard


def captured(
    descriptor: Descriptor,
    step: Callable[[], None],
    breaking: Sequence[str],
    pool: Any,
    stream: Any,
) -> tuple[Part[Any], ...]:
    """The `CUDAGraph` of each part of a step, in order.

    Nothing runs meanwhile, and all parts lie in one pool: what one leaves, the next reads.

    Args:
        descriptor: which step it is.
        step: runs it on `stream`.
        breaking: operators that get a graph of their own; none: the step is one graph.
        pool: where what is allocated meanwhile lies.
        stream: that is captured.

    Raises:
        GraphError: the step does what no graph can hold.
    """
    parting = Parting(breaking, lambda: _Capture.begin(pool, stream), _Capture.end)

    def listened() -> None:
        with heard(parting.hear):
            step()

    try:
        parts = parting.run(listened if breaking else step)
    except VccError:
        raise
    except Exception as error:
        why = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise GraphError(f"a step of {descriptor.tokens} rows cannot be captured", why) from error
    torch.cuda.synchronize()
    return tuple(Part(part.kind, part.name, part.held.graph) for part in parts)


def rehearsed(step: Callable[[], None], breaking: Sequence[str]) -> None:
    """Run a step as `captured` will, without a graph.

    Code may do something else while its calls are heard, and what it loads or allocates for the
    first time shall not be part of a capture.
    """
    if not breaking:
        step()
        return
    with heard(lambda op, args, kwargs: op(*args, **kwargs)):
        step()


@dataclass(frozen=True, slots=True)
class _Capture:
    """A capture under way; kernels may be loaded and memory mapped meanwhile, hence relaxed."""

    graph: Any
    context: Any

    @classmethod
    def begin(cls, pool: Any, stream: Any) -> _Capture:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        how: dict[str, Any] = {"pool": pool.id, "stream": stream, "capture_error_mode": "relaxed"}
        context = torch.cuda.graph(graph, **how)
        context.__enter__()
        return cls(graph, context)

    def end(self) -> None:
        self.context.__exit__(None, None, None)
