"""At the first boot on a site: what the store of matrix products lacks for an artifact.

The run does not wait and computes by the artifact's own kernels; the next one finds the products.
Torch-free.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from vcc.cache.store import Store
from vcc.engine.tune.command import default_rows, this_gpu
from vcc.engine.tune.gpu import Gpu
from vcc.engine.tune.job import Job
from vcc.engine.tune.libraries import CUBLASLT, CUPTI, are_here
from vcc.engine.tune.shapes import GemmShape
from vcc.engine.tune.store import GemmStore
from vcc.engine.tune.wanted import products_of

PLAYER = "Player"


def missing(
    store: GemmStore, gpu: Gpu, wanted: Collection[GemmShape]
) -> tuple[tuple[GemmShape, ...], str]:
    """The products worth recording, and why there are none.

    Args:
        store: the site's store.
        gpu: the device of this run.
        wanted: products of the artifact at the row counts that its graphs and buckets have.
    """
    lacking = tuple(sorted(set(wanted) - store.known(gpu)))
    if not lacking:
        return (), "all products are stored"
    failed = [one for one in store.self_tests(gpu).values() if not one.passed]
    if failed:
        return (), f"stored products failed their self-test here: {failed[-1].why}"
    for name, sonames in (("CUPTI", CUPTI), ("cuBLASLt", CUBLASLT)):
        if not are_here(sonames):
            return (), f"{name} is not on this machine"
    return lacking, ""


def lacking(root: Path, artifact: str, ordinal: int = 0) -> Job | None:
    """The recording that an artifact of the store at `root` needs; None for none.

    Raises:
        DeviceError: no GPU.
        IntegrityError, StorageError: the artifact cannot be read.
    """
    store = Store.open(root)
    entry = next((one for one in store.entries() if one.artifact == artifact), None)
    if entry is None or dict(entry.host_rules).get("loader") != PLAYER:
        return None
    loaded = store.load(entry)
    products = products_of(loaded)
    if not products.gemms:
        return None
    wanted = products.shapes(default_rows(loaded, products))
    shapes, _ = missing(GemmStore(root), this_gpu(ordinal), wanted)
    return Job(root, shapes, ordinal) if shapes else None
