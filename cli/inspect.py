"""vcc inspect: what is stored, what an artifact consists of, what a key is made of."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict

import typer

from vcc.cli import options
from vcc.cli.console import age_text, columns, out, out_json, size_text
from vcc.cli.inspect_batches import inspect_batches
from vcc.cli.inspect_cache import inspect_cache
from vcc.cli.inspect_graph import inspect_graph, inspect_kernel
from vcc.cli.inspect_key import inspect_key
from vcc.cli.op_report import op_lines
from vcc.cli.range_report import range_rows
from vcc.cli.stored import find_entry

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Look at the store, an artifact, a key, a GPU graph, or the steps of a run.",
)
app.command("batches")(inspect_batches)
app.command("graph")(inspect_graph)
app.command("kernel")(inspect_kernel)
app.command("key")(inspect_key)
app.command("cache")(inspect_cache)


@app.command("artifact")
def inspect_artifact(
    name: options.Stored, cache_dir: options.CacheDir = None, json: options.Json = False
) -> None:
    """Show one artifact: request, keys, host rules, custom ops, blobs, GPU content."""
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
        fields |= {"trust": loaded.trust, "tier": loaded.tier}
        out_json({"artifact": entry.artifact, "size": entry.size, **fields})
        return
    age = age_text(max(0.0, time.time() - entry.created))
    out(f"{entry.artifact}\n{manifest.title}, {size_text(entry.size)}, {age} old")
    out(f"admitted, as it was {loaded.trust}; in the {loaded.tier} store")
    open_fields = set(manifest.open_fields)
    request = {k + (" (open)" if k in open_fields else ""): v for k, v in manifest.request}
    for title, pairs in (
        ("request", request),
        ("settled when it was built", dict(entry.settled)),
        ("code key", dict(manifest.code_key)),
        ("plan key", dict(manifest.plan_key)),
        ("host rules", manifest.host_rules),
        ("built with", manifest.builder),
    ):
        _section(title, pairs)
    if ops := op_lines(manifest.info.get("ops")):
        out(f"\ncustom ops\n{ops}")
    if ranges := range_rows(manifest.info.get("ranges")):
        out("\nranges of sizes\n" + _indented(columns(ranges)))
    for title, found in gpu_sections(manifest):
        _section(title, found)
    if products:
        out("\nmatrix products\n" + _indented(columns(gemm_rows(products))))
    rows = [(n, size_text(b.size), b.kind, b.sha256[:16]) for n, b in manifest.blobs.items()]
    out("\nblobs\n" + _indented(columns(rows or [("none",)])))


def _section(title: str, pairs: Mapping[str, str]) -> None:
    from vcc.engine.listed import list_text

    if pairs:
        rows = [(name, list_text(value)) for name, value in sorted(pairs.items())]
        out(f"\n{title}\n" + _indented(columns(rows)))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
