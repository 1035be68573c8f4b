"""vcc inspect: what is stored, what an artifact consists of, what a key is made of."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from vcc.cli import options
from vcc.cli.console import columns, out, out_json, size_text
from vcc.cli.inspect_batches import inspect_batches
from vcc.cli.inspect_graph import inspect_graph, inspect_kernel
from vcc.cli.inspect_key import inspect_key
from vcc.cli.stored import find_entry

if TYPE_CHECKING:
    from vcc.cache.request import Entry

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Look at the store, an artifact, a key, a GPU graph, or the steps of a run.",
)
app.command("batches")(inspect_batches)
app.command("graph")(inspect_graph)
app.command("kernel")(inspect_kernel)
app.command("key")(inspect_key)


@app.command("cache")
def inspect_cache(cache_dir: options.CacheDir = None, json: options.Json = False) -> None:
    """List all artifacts, newest first."""
    from vcc.cache.store import Store

    store = Store.open(cache_dir)
    entries = tuple(store.entries())
    if json:
        total = sum(entry.size for entry in entries)
        rows = [_entry_dict(entry) for entry in entries]
        out_json({"root": str(store.root), "artifacts": rows, "size": total})
    elif entries:
        out(columns([_HEAD, *(_entry_row(entry) for entry in entries)]))
    else:
        out(f"no artifacts in {store.root}")


_HEAD = ("artifact", "age", "size", "dtype", "compile", "graphs", "what")


@app.command("artifact")
def inspect_artifact(
    name: options.Stored, cache_dir: options.CacheDir = None, json: options.Json = False
) -> None:
    """Show one artifact: request, keys, host rules, blobs, GPU content."""
    import msgspec

    from vcc.cache.store import Store
    from vcc.cli.gpu_content import gemm_rows, gpu_sections, measured

    store = Store.open(cache_dir)
    entry = find_entry(store, name)
    loaded = store.load(entry)
    manifest = loaded.manifest
    products = measured(store, loaded)
    if json:
        fields = dict(msgspec.to_builtins(manifest))
        fields["products"] = [asdict(one) for one in products]
        out_json({"artifact": entry.artifact, "size": entry.size, **fields})
        return
    out(f"{entry.artifact}\n{manifest.title}, {size_text(entry.size)}, {_age(entry.created)} old")
    open_fields = set(manifest.open_fields)
    request = {k + (" (open)" if k in open_fields else ""): v for k, v in manifest.request}
    for title, pairs in (
        ("request", request),
        ("code key", dict(manifest.code_key)),
        ("plan key", dict(manifest.plan_key)),
        ("host rules", manifest.host_rules),
        ("built with", manifest.builder),
    ):
        _section(title, pairs)
    for title, found in gpu_sections(manifest):
        _section(title, found)
    if products:
        out("\nmatrix products\n" + _indented(columns(gemm_rows(products))))
    rows = [(n, size_text(b.size), b.kind, b.sha256[:16]) for n, b in manifest.blobs.items()]
    out("\nblobs\n" + _indented(columns(rows or [("none",)])))


def _entry_dict(entry: Entry) -> dict[str, object]:
    return {
        "artifact": entry.artifact,
        "title": entry.title,
        "created": entry.created,
        "size": entry.size,
        "request": entry.fields,
        "host_rules": dict(entry.host_rules),
    }


def _entry_row(entry: Entry) -> tuple[str, ...]:
    fields = entry.fields
    labels = ("model.dtype", "config.mode", "config.cuda_graph_mode")
    return (
        entry.artifact[:12],
        _age(entry.created),
        size_text(entry.size),
        *(fields.get(label, "-") for label in labels),
        entry.title,
    )


def _section(title: str, pairs: Mapping[str, str]) -> None:
    if pairs:
        out(f"\n{title}\n" + _indented(columns(sorted(pairs.items()))))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _age(created: int) -> str:
    """Time since `created`; a clock that was set back makes no negative age."""
    seconds = max(0, int(time.time()) - created)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
