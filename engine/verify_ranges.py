"""Are the node tables of an artifact's ranges what their names say, and of one memory?"""

from __future__ import annotations

from collections.abc import Mapping

from vcc.cache.errors import IntegrityError
from vcc.cache.manifest import Manifest
from vcc.engine.graphs.blob_names import STEP
from vcc.engine.graphs.range_blobs import range_blobs
from vcc.engine.graphs.table.types import NodeTable, Role, TableTensor

_HINT = "rebuild it: vcc compile"


def check_ranges(manifest: Manifest, tables: Mapping[str, NodeTable]) -> None:
    """Check the step tables of an artifact against each other.

    Args:
        manifest: of the artifact.
        tables: by blob name.

    Raises:
        IntegrityError: ranges that overlap, leave a gap or are not listed; a table of other sizes
            than its name says; tables that cannot share memory.
    """
    ranges = range_blobs(manifest, STEP, "node table")
    for name, (low, high) in ranges.items():
        said = [(one.low, one.high) for one in tables[name].symbols if one.name == "T"]
        if said != [(low, high)]:
            raise IntegrityError(f"{name} is a table of other sizes", f"it says {said}", _HINT)
    names = list(ranges)
    for name in names[1:]:
        _check_shared(names[0], tables[names[0]], name, tables[name])


def _check_shared(first: str, one: NodeTable, second: str, two: NodeTable) -> None:
    if one.regions != two.regions:
        raise _apart(first, second, "their regions are not the same")
    mine, theirs = ({t.name: _place(t) for t in table.tensors} for table in (one, two))
    for name in sorted(mine.keys() | theirs.keys()):
        if mine.get(name) != theirs.get(name):
            raise _apart(first, second, f"tensor {name[:60]} lies elsewhere")


def _place(tensor: TableTensor) -> tuple[object, ...]:
    """What is equal in all ranges; the rows of inputs are the range's own."""
    rows = () if tensor.role is Role.INPUT else tensor.shape
    return (tensor.target, tensor.role, tensor.dtype, tensor.region, tensor.offset, rows)


def _apart(first: str, second: str, why: str) -> IntegrityError:
    return IntegrityError(f"{first} and {second} cannot share memory", why, _HINT)
