"""Write the node tables that tests and the fuzzer start from.

``python tests/support/table_files.py`` after a change of the format; the suite says when to.
"""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[0] = str(TESTS)  # its own folder has files named like standard modules

from support.tables import every_kind, recorded  # noqa: E402
from vcc.engine.graphs.table.encode import encode  # noqa: E402
from vcc.engine.graphs.table.types import NodeTable  # noqa: E402

CORPUS = TESTS / "csrc/corpus/table"


def files() -> dict[Path, bytes]:
    """What each file must hold."""
    seeds = {"every_kind": every_kind(), "recorded": recorded(), "empty": NodeTable()}
    return {CORPUS / name: encode(table) for name, table in seeds.items()}


if __name__ == "__main__":
    for path, data in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
