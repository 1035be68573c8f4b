"""Find a cubin in the store by its digest, and who launches its kernels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from vcc.cache.errors import MissingArtifact, UsageError, VccError
from vcc.cache.loaded import Loaded
from vcc.cache.store import Store
from vcc.engine.graphs.blob_names import CUBIN, TABLE
from vcc.engine.graphs.cubin import Cubin, read_cubin
from vcc.engine.graphs.stored_tables import read_tables
from vcc.engine.graphs.table.types import NodeKind

SHORTEST = 4
"""Characters of a digest that are enough if only one begins so."""


@dataclass(frozen=True, slots=True)
class Use:
    """A kernel of a table that is in the cubin: `nodes` of the table launch it."""

    artifact: str
    title: str
    table: str
    function: str
    nodes: int
    shared: int


@dataclass(frozen=True, slots=True)
class KernelUse:
    """A cubin, its bytes, and its uses."""

    digest: str
    data: bytes
    cubin: Cubin
    uses: tuple[Use, ...]


def find_kernel(store: Store, beginning: str) -> KernelUse:
    """The cubin whose digest is or begins so.

    Raises:
        UsageError: too short, or several begin so.
        MissingArtifact: none.
        IntegrityError: it is damaged.
    """
    wanted = beginning.lower()
    if len(wanted) < SHORTEST:
        raise UsageError(f'"{beginning}" is too short', f"give {SHORTEST} characters or more")
    holders = _holders(store, wanted)
    digests = sorted({digest for _, _, found in holders for digest in found})
    if not digests:
        raise MissingArtifact(
            f"no kernel {beginning}",
            f"no artifact in {store.root} has such a cubin",
            "vcc inspect graph lists the cubins of a model",
        )
    if len(digests) > 1:
        ids = ", ".join(digest[:16] for digest in digests[:5])
        raise UsageError(f"{beginning} is not one kernel", f"these begin so: {ids}")
    (digest,) = digests
    data = holders[0][2][digest].read(CUBIN + digest)
    uses = [use for id, title, found in holders for use in _uses(id, title, found[digest], digest)]
    return KernelUse(digest, data, read_cubin(data), tuple(uses))


def _holders(store: Store, wanted: str) -> list[tuple[str, str, dict[str, Loaded]]]:
    """Artifacts that have such a cubin, with it by digest; unreadable ones are passed over."""
    found = []
    for entry in store.entries():
        try:
            loaded = store.load(entry)
        except VccError:
            continue
        names = [n.removeprefix(CUBIN) for n in loaded.manifest.blobs if n.startswith(CUBIN)]
        fitting = {name: loaded for name in names if name.startswith(wanted)}
        if fitting:
            found.append((entry.artifact, entry.title, fitting))
    return found


def _uses(artifact: str, title: str, loaded: Loaded, digest: str) -> list[Use]:
    if not any(name.startswith(TABLE) for name in loaded.manifest.blobs):
        return []
    uses = []
    for name, table in read_tables(loaded).items():
        nodes = Counter(one.target for one in table.nodes if one.kind is NodeKind.KERNEL)
        uses += [
            Use(artifact, title, name, kernel.function, nodes[index], kernel.shared)
            for index, kernel in enumerate(table.kernels)
            if kernel.cubin == digest
        ]
    return uses
