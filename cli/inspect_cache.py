"""vcc inspect cache: all artifacts of the store and of the lower ones."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from vcc.cli import options
from vcc.cli.cache_list import compile_text, dtype_text
from vcc.cli.console import age_text, columns, note, out, out_json, size_text

if TYPE_CHECKING:
    from vcc.cache.care.items import Item

TITLE = " · "
"""Between the parts of a title; the first is the model, the others have columns of their own."""

_HEAD = ("artifact", "age", "size", "target", "dtype", "compile", "graphs", "model")


def inspect_cache(cache_dir: options.CacheDir = None, json: options.Json = False) -> None:
    """List all artifacts, newest first."""
    from vcc.cache.care.prune import items_of
    from vcc.cache.store import Store

    gc.disable()  # 10,000 rows are many small objects, all of which stay to the end
    store = Store.open(cache_dir)
    found = [items_of(tier.root, index=True) for tier in store.tiers]
    unique = {item.artifact: item for one in reversed(found) for item in one.items}
    items = sorted(unique.values(), key=lambda item: (-item.created, item.artifact))
    bad = sum(one.bad for one in found)
    if bad:
        note(f"{bad} refs are damaged: vcc cache verify tells which")
    if json:
        total = sum(item.size for item in items)
        rows = [_as_dict(item) for item in items]
        out_json({"root": str(store.root), "artifacts": rows, "size": total})
    elif items:
        out(columns([_HEAD, *(_row(item) for item in items)]))
    else:
        out(f"no artifacts in {store.root}")


def _as_dict(item: Item) -> dict[str, object]:
    return {
        "artifact": item.artifact,
        "title": item.title,
        "created": item.created,
        "size": item.size,
        "request": item.fields,
        "host_rules": item.rules,
    }


def _row(item: Item) -> tuple[str, ...]:
    return (
        item.artifact[:12],
        age_text(item.age),
        size_text(item.size),
        item.shown.get("target", "-"),
        dtype_text(item),
        compile_text(item),
        item.shown.get("config.cuda_graph_mode", "-"),
        item.title.split(TITLE)[0],
    )
