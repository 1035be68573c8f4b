"""The tables of docs/ops.md, made from the schemas, the layers and the surfaces.

Rewrite them with `PYTHONPATH=tests python -m support.op_reference` from the top of the repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from vcc.engine.ops.backends import BACKENDS, ORDER
from vcc.engine.ops.names import CUSTOM_OPS
from vcc.engine.ops.schemas import OPS
from vcc.engine.ops.surfaces.row import Row
from vcc.engine.ops.triton.registry import BUILDERS

PAGE = Path(__file__).parents[2] / "docs" / "ops.md"
KERNELS = tuple(name for name, one in BACKENDS.items() if one.surface or name == "cuda")
PACKAGED = tuple(name for name, one in BACKENDS.items() if one.package)
SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _dtypes(row: Row) -> str:
    return ", ".join(SHORT[name] for name in row.dtypes)


def _layers() -> Iterator[tuple[str, ...]]:
    for op, one in CUSTOM_OPS.items():
        cells = (_cell(one.operators, BACKENDS[name].surface) for name in KERNELS)
        yield f"`{op}`", f"`{one.layer}`", ", ".join(f"`{n}`" for n in one.operators), *cells


def _cell(operators: tuple[str, ...], surface: Mapping[str, Row]) -> str:
    if not all(op in surface for op in operators):
        return ""
    common = set.intersection(*(set(surface[op].dtypes) for op in operators))
    return ", ".join(short for name, short in SHORT.items() if name in common)


def _operators() -> Iterator[tuple[str, ...]]:
    for op in OPS:
        cells = [_dtypes(row) if (row := _row(name, op.name)) else "" for name in KERNELS]
        if op.name in BUILDERS:
            cells[KERNELS.index("triton")] = "as nodes of a table"
        yield f"`{op.name}`", "yes" if "!" in op.arguments else "", *cells


def _row(backend: str, op: str) -> Row | None:
    return BACKENDS[backend].surface.get(op)


def _packages() -> Iterator[tuple[str, ...]]:
    for name in PACKAGED:
        for row in BACKENDS[name].surface.values():
            limits = [
                f"`{one.fact}` {'=' if one.equals is not None else '≤'} "
                f"{one.most if one.equals is None else one.equals:g}"
                for one in row.limits
            ]
            yield (
                *(f"`{row.op}`", name, f"`{row.symbol}`", row.minimum, _dtypes(row)),
                *(row.strides.value, ", ".join(limits), ", ".join(row.archs) or "all"),
            )


def _orders() -> Iterator[tuple[str, ...]]:
    for platform, names in ORDER.items():
        if platform not in KERNELS or platform in ("cuda", "cpu", "xpu"):
            yield f"`{platform}`", ", ".join(f"`{name}`" for name in names)


TABLES = {
    "orders": lambda: _table(("platform", "order"), _orders()),
    "custom ops": lambda: _table(("custom op", "layer", "operators", *KERNELS), _layers()),
    "operators": lambda: _table(("operator", "writes", *KERNELS), _operators()),
    "packages": lambda: _table(
        (
            *("operator", "back end", "symbol", "from version", "dtypes"),
            *("layouts", "limits", "architectures"),
        ),
        _packages(),
    ),
}


def rewritten(page: str) -> str:
    """The page with every marked table made anew."""
    for name, make in TABLES.items():
        start, end = f"<!-- {name} -->", f"<!-- end {name} -->"
        block = f"{start}\n{make()}\n{end}"
        page, count = re.subn(
            f"{re.escape(start)}.*?{re.escape(end)}", lambda _, b=block: b, page, flags=re.DOTALL
        )
        if count != 1:
            raise ValueError(f"docs/ops.md has {count} tables of {name}")
    return page


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
