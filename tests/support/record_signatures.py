"""Write the signature file of a released package of kernels, which the rows of a surface must fit.

`pip download amd-aiter` (its source) or `pip download vllm-xpu-kernels` (a wheel), unpack it, and

    python tests/support/record_signatures.py aiter FOLDER 0.1.7.post2.dev18
    python tests/support/record_signatures.py xpu FOLDER 0.1.12.1

Only facts are kept: names, types, defaults, and the file in which each was found. No code of the
package is run: Python is parsed, and schemas are read out of the libraries as text.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

from vcc.engine.ops import backends
from vcc.engine.ops.surfaces import aiter, xpu

FOLDER = Path(backends.__file__).parent / "signatures"
SCHEMA = re.compile(rb"([a-z_0-9]{3,80}\([\x20-\x7e]{3,2000}?\) -> [\x20-\x7e]{2,60}?)\x00")


def of_aiter(root: Path) -> dict[str, Any]:
    """Functions of `aiter/ops` by `module:name`."""
    wanted = {row.symbol.partition(":")[2] for row in aiter.ROWS.values()}
    found = {}
    for path in sorted((root / "aiter" / "ops").glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name in wanted:
                source = str(path.relative_to(root))
                found[f"aiter:{node.name}"] = {"source": source, "arguments": _arguments(node.args)}
    return found


def _arguments(found: ast.arguments) -> list[list[str]]:
    missing = len(found.args) - len(found.defaults)
    return [
        [
            one.arg,
            ast.unparse(one.annotation) if one.annotation else "",
            *([ast.unparse(found.defaults[i - missing])] if i >= missing else []),
        ]
        for i, one in enumerate(found.args)
    ]


def of_xpu(root: Path) -> dict[str, Any]:
    """Schemas in the extension modules by `namespace::name`."""
    wanted = {row.symbol for row in xpu.ROWS.values()}
    found = {}
    for module in xpu.MODULES:
        namespace = module.rpartition(".")[2]
        path = root.joinpath(*module.split(".")[:-1], f"{namespace}.abi3.so")
        for match in SCHEMA.finditer(path.read_bytes()):
            schema = " ".join(match[1].decode().split())
            symbol = f"{namespace}::{schema.partition('(')[0]}"
            if symbol in wanted:
                found[symbol] = {"source": str(path.relative_to(root)), "schema": schema}
    return found


KINDS = {"aiter": ("amd-aiter", of_aiter), "xpu": ("vllm-xpu-kernels", of_xpu)}


def main() -> None:
    """Record one release."""
    kind, root, release = sys.argv[1:]
    distribution, read = KINDS[kind]
    text = {"distribution": distribution, "release": release, "symbols": read(Path(root))}
    path = FOLDER / f"{kind}-{release}.json"
    path.write_text(json.dumps(text, indent=1, sort_keys=True) + "\n")
    print(path)


if __name__ == "__main__":
    main()
