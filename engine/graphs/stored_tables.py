"""The node tables of a stored artifact, read and checked."""

from __future__ import annotations

from vcc.cache.errors import UsageError
from vcc.cache.loaded import Loaded
from vcc.engine.graphs.blob_names import TABLE
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.types import NodeTable


def read_tables(loaded: Loaded) -> dict[str, NodeTable]:
    """All node tables by blob name.

    Raises:
        UsageError: the artifact has none.
        IntegrityError: a blob is damaged, or no table.
    """
    names = sorted(name for name in loaded.manifest.blobs if name.startswith(TABLE))
    if not names:
        target = dict(loaded.manifest.request).get("target", "another kind of machine")
        raise UsageError(
            "the artifact has no node table",
            f"it was built for {target}",
            "build one for a GPU: vcc compile MODEL --target sm_90",
        )
    return {name: decode(loaded.read(name)) for name in names}
