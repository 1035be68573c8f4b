"""GB/s that copies within the device move, reads and writes counted; without torch.

Prints one JSON line. The copy is a graph of one node over more memory than any cache holds.
"""

from __future__ import annotations

import json
import statistics
from contextlib import ExitStack

from vcc.engine.graphs.recorder.calls import open_driver
from vcc.engine.graphs.recorder.replay import DeviceBytes, Functions, Replay

BYTES = 4 << 30
TIMES, ROUNDS = 10, 5


def main() -> None:
    """Copy and time."""
    open_driver(0)
    with ExitStack() as stack:
        source, target = (stack.enter_context(DeviceBytes(BYTES)).address for _ in range(2))
        replay = Replay(Functions({}))
        replay.copy_own(target, source, BYTES)
        replay.instantiate().launch(2)
        times = [replay.launch(TIMES) for _ in range(ROUNDS)]
        replay.close()
    print(json.dumps({"copy_gb_per_second": 2 * BYTES / statistics.median(times) / 1e3}))


if __name__ == "__main__":
    main()
