"""vcc inspect graph and kernel: the node tables and cubins of a GPU artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from vcc.cache.words import amount
from vcc.cli import options
from vcc.cli.console import columns, err, out, out_json, short, size_text
from vcc.cli.stored import PLAYER, find_entry

if TYPE_CHECKING:
    from vcc.engine.graphs.summary import GemmLine, Summary
    from vcc.engine.graphs.table.types import NodeTable
    from vcc.engine.graphs.uses import KernelUse

Tokens = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--tokens", metavar="T", min=1, help="tokens of the step shown; 1 by default"),
]
Seqs = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--seqs", metavar="B", min=1, help="its sequences; 1 by default"),
]


_OPTIONS = {"T": "--tokens", "B": "--seqs"}


def inspect_graph(
    name: options.Stored,
    tokens: Tokens = None,
    seqs: Seqs = None,
    nodes: Annotated[bool, typer.Option("--nodes", help="list every node")] = False,
    dot: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--dot", metavar="FILE", help="write the step as Graphviz text to FILE (- prints)"
        ),
    ] = None,
    cache_dir: options.CacheDir = None,
    json: options.Json = False,
) -> None:
    """Show the node table of a GPU artifact at given sizes."""
    from vcc.cache.errors import UsageError
    from vcc.cache.store import Store
    from vcc.engine.graphs.stored_tables import read_tables

    store = Store.open(cache_dir)
    entry = find_entry(store, name, loader=PLAYER)
    tables = read_tables(store.load(entry))
    found = summaries(tables, tokens, seqs)
    if dot == Path("-") and json:
        raise UsageError("--dot - and --json both print", "", "give --dot a file")
    if dot is not None:
        from vcc.engine.graphs.dot import dot as graphviz

        texts = [graphviz(tables[label], one.sizes) for label, one in found.items()]
        if dot == Path("-"):
            out("\n".join(texts))
            return
        _write(dot, "\n".join(texts).encode())
    if json:
        out_json({"artifact": entry.artifact, "tables": {k: asdict(v) for k, v in found.items()}})
        return
    out(f"{short(entry.artifact)} {entry.title}")
    for label, summary in found.items():
        out(f"\n{label}\n" + _indented(_as_text(summary, nodes=nodes)))


def summaries(
    tables: Mapping[str, NodeTable], tokens: int | None, seqs: int | None
) -> dict[str, Summary]:
    """The tables that hold a step of these sizes; of a recorded artifact each is for one.

    Where ranges of tokens have tables of their own, a step of so many tokens takes one of them.

    Raises:
        UsageError: none does, with the range of the last; or a size that no table has was given.
    """
    from vcc.cache.errors import UsageError
    from vcc.engine.graphs.summary import sizes_of, summarise

    _check_varies(tables, {"T": tokens, "B": seqs})
    found, refusal = dict[str, "Summary"](), None
    tables = tables if tokens is None else _taken(tables, tokens)
    for label, table in tables.items():
        try:
            found[label] = summarise(table, sizes_of(table, T=tokens, B=seqs))
        except UsageError as error:
            refusal = error
    if refusal is not None and not found:
        raise refusal
    return found


def _check_varies(tables: Mapping[str, NodeTable], asked: Mapping[str, int | None]) -> None:
    """Refuse a size where it is none of any table: a plain forward has no tokens, or fixed ones.

    Raises:
        UsageError: with the sizes that do vary.
    """
    from vcc.cache.errors import UsageError

    vary = dict.fromkeys(one.name for table in tables.values() for one in table.symbols)
    for name, size in asked.items():
        if size is not None and name not in vary:
            raise UsageError(
                f"{_OPTIONS[name]} {size} is no size of this graph",
                f"what varies in it: {', '.join(vary) or 'nothing, all of its sizes are fixed'}",
                f"leave {_OPTIONS[name]} out",
            )


def _taken(tables: Mapping[str, NodeTable], tokens: int) -> Mapping[str, NodeTable]:
    """Without the tables of ranges that a step of so many tokens does not take.

    Raises:
        UsageError: no range holds it.
    """
    from vcc.cache.errors import UsageError
    from vcc.engine.graphs.blob_names import STEP

    ranges = {
        label: (one.low, one.high)
        for label, table in tables.items()
        for one in table.symbols
        if label.startswith(f"{STEP}/") and one.name == "T"
    }
    fit = [label for label, (low, high) in ranges.items() if low <= tokens <= high]
    if ranges and not fit:
        listed = ", ".join(f"{low} to {high}" for low, high in sorted(ranges.values()))
        raise UsageError(
            f"T = {tokens} is outside the tables' ranges",
            f"they were built for {listed}",
            "give --tokens within one of them",
        )
    best = sorted(fit, key=lambda label: ranges[label][1] - ranges[label][0])[:1]
    return {label: tables[label] for label in best} or tables


def inspect_kernel(
    digest: Annotated[
        str,
        typer.Argument(
            metavar="DIGEST", help="a cubin's SHA-256 or its beginning", show_default=False
        ),
    ],
    cubin: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--cubin", metavar="FILE", help="write the ELF file to FILE"),
    ] = None,
    cache_dir: options.CacheDir = None,
    json: options.Json = False,
) -> None:
    """Show a cubin: its functions, their registers and memory, and who launches them."""
    from vcc.cache.store import Store
    from vcc.engine.graphs.uses import find_kernel

    found = find_kernel(Store.open(cache_dir), digest)
    if cubin is not None:
        _write(cubin, found.data)
        err(f"{cubin}: {size_text(len(found.data))}; cuobjdump -sass shows its instructions")
    if json:
        out_json(_kernel_dict(found))
    else:
        out(_kernel_text(found))


def _as_text(found: Summary, *, nodes: bool) -> str:
    sizes = ", ".join(f"{name} = {size}" for name, size in found.sizes.items())
    ranges = ", ".join(f"{name} {low} to {high}" for name, low, high in found.symbols)
    blocks = [
        f"sizes {sizes} (built for {ranges})",
        f"{amount(len(found.segments), 'segments')}, "
        f"{amount(len(found.nodes), 'nodes')} at these sizes",
        _table("segments", ("kind", "name", "nodes"), _segments(found)),
        _table("kernels", ("launches", "function", "threads", "shared", "cubin"), _kernels(found)),
        _table("products", ("count", "rows", "n", "k", "dtype", "kernel"), _gemms(found)),
        _table("regions", ("region", "bytes"), _regions(found)),
        _table("tensors", ("role", "count", "first"), _tensors(found)),
    ]
    if nodes:
        blocks.append(_table("nodes", ("node", "grid", "what", "regions"), _nodes(found)))
    return "\n".join(block for block in blocks if block)


def _table(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return f"{title}\n" + _indented(columns([head, *rows])) if rows else ""


def _segments(found: Summary) -> list[tuple[str, ...]]:
    """Segments in order of first appearance, equal ones together."""
    counts: dict[tuple[str, str, int], int] = {}
    for one in found.segments:
        key = (one.kind.lower(), one.name, one.nodes)
        counts[key] = counts.get(key, 0) + 1
    return [
        (kind, name, str(nodes) if times == 1 else f"{nodes} ({times} times)")
        for (kind, name, nodes), times in counts.items()
    ]


def _kernels(found: Summary) -> list[tuple[str, ...]]:
    return [
        (str(k.launches), k.function, str(k.threads), size_text(k.shared), k.cubin[:12])
        for k in found.kernels
    ]


def _gemms(found: Summary) -> list[tuple[str, ...]]:
    return [
        (str(g.count), str(g.rows), str(g.n), str(g.k), _types(g), g.route) for g in found.gemms
    ]


def _types(one: GemmLine) -> str:
    return f"{one.dtype} by {one.scales} into {one.out}" if one.scales else one.dtype


def _regions(found: Summary) -> list[tuple[str, ...]]:
    return [(f"{r.kind} {r.index or ''}".strip(), size_text(r.size)) for r in found.regions]


def _tensors(found: Summary) -> list[tuple[str, ...]]:
    return [(t.role.lower(), str(t.count), ", ".join(t.names[:3])) for t in found.tensors]


def _nodes(found: Summary) -> list[tuple[str, ...]]:
    return [
        (str(n.index), "x".join(map(str, n.grid)) or "-", n.what, ", ".join(n.regions))
        for n in found.nodes
    ]


def _kernel_dict(found: KernelUse) -> dict[str, object]:
    return {
        "cubin": found.digest,
        "size": len(found.data),
        "target": found.cubin.target,
        "functions": [asdict(one) for one in found.cubin.functions.values()],
        "uses": [asdict(one) for one in found.uses],
    }


def _kernel_text(found: KernelUse) -> str:
    head = ("function", "registers", "shared", "stack", "parameters", "code")
    functions = [
        (
            one.name,
            str(one.registers),
            size_text(one.shared),
            size_text(one.stack),
            size_text(one.param_bytes),
            size_text(one.code_bytes),
        )
        for one in found.cubin.functions.values()
    ]
    uses = [
        (one.artifact[:12], one.table, one.function, str(one.nodes), size_text(one.shared))
        for one in found.uses
    ]
    return "\n".join(
        (
            f"{found.digest}\n{found.cubin.target}, {size_text(len(found.data))}",
            columns([head, *functions]),
            _table("used by", ("artifact", "table", "function", "nodes", "dynamic shared"), uses),
        )
    )


def _write(file: Path, data: bytes) -> None:
    from vcc.cache.errors import StorageError

    try:
        file.write_bytes(data)
    except OSError as error:
        raise StorageError(
            f"cannot write {file}", str(error), "give a file that this account can write"
        ) from error


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
