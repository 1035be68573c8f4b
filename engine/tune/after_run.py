"""After a run on a GPU: what the store lacks is recorded by a process that outlives it."""

from __future__ import annotations

from vcc.cache.errors import VccError
from vcc.cache.store import Store
from vcc.engine.config.environment import read_environment
from vcc.engine.tune import later
from vcc.engine.tune.command import default_rows, this_gpu
from vcc.engine.tune.store import GemmStore
from vcc.engine.tune.wanted import products_of

PLAYER = "Player"


def record_beside(store: Store, artifact: str | None) -> str:
    """Start recording the products of the artifact that ran, where that is possible and needed.

    Args:
        store: the site's store.
        artifact: id of what ran; None where it is not stored.

    Returns:
        What was started, as a note; empty when nothing was.
    """
    if artifact is None or not read_environment().record_products:
        return ""
    try:
        return _started(store, artifact)
    except VccError:
        return ""  # the run is over and was right: this was an offer


def _started(store: Store, artifact: str) -> str:
    entry = next((one for one in store.entries() if one.artifact == artifact), None)
    if entry is None or dict(entry.host_rules).get("loader") != PLAYER:
        return ""
    loaded = store.load(entry)
    products = products_of(loaded)
    if not products.gemms:
        return ""
    gemms = GemmStore(store.root)
    shapes, _ = later.missing(gemms, this_gpu(0), products.shapes(default_rows(loaded, products)))
    later.start(store.root, shapes, 0)
    if not shapes:
        return ""
    return (
        f"recording {len(shapes)} matrix products of cuBLASLt for the next run, beside; "
        "vcc tune also chooses between them and Triton's"
    )
