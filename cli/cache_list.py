"""vcc cache ls, du, stats, dir: what lies in the store. Nothing is changed."""

from __future__ import annotations

import gc
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from vcc.cli import options
from vcc.cli.chosen import filtered, read_filters
from vcc.cli.console import age_text, columns, note, out, out_json, size_text

if TYPE_CHECKING:
    from vcc.cache.care.items import Item
    from vcc.cache.care.stats import ModelStats

SHOWN = {
    "dtype": "model.dtype",
    "kv_cache_dtype": "model.kv_cache_dtype",
    "compile": "config.mode",
    "backend": "config.backend",
    "mode": "config.cuda_graph_mode",
    "target": "target",
}
"""JSON fields: the labels of the request that they show."""

_COLUMNS = ("dtype", "compile", "mode", "target")
_IN_PIECES = ("VCC_COMPILE", "DYNAMO_TRACE_ONCE")
"""Compile modes whose pieces a back end makes; the eager one compiles nothing."""

_HEAD = (
    "artifact",
    "age",
    "idle",
    "size",
    "hits",
    *("dtype", "compile", "graphs", "target", "what"),
)


def ls_command(
    filters: options.Filters = None,
    cache_dir: options.CacheDir = None,
    json: options.Json = False,
) -> None:
    """List the artifacts of the store and of the lower ones, newest first."""
    from vcc.cache.care.prune import items_of
    from vcc.cache.store import Store

    gc.disable()  # 10,000 rows are many small objects, all of which stay to the end
    wanted, tiers = read_filters(filters), Store.open(cache_dir).tiers
    rows: list[tuple[str, Item]] = []
    bad = 0
    for tier in tiers:
        found = items_of(tier.root, index=True)
        bad += found.bad
        rows += [(tier.name, item) for item in filtered(tier.root, found.items, wanted)]
    if json:
        artifacts = [{"tier": tier, **item_dict(item)} for tier, item in rows]
        size = sum(item.size for _, item in rows)
        out_json({"root": str(tiers[0].root), "artifacts": artifacts, "size": size, "bad": bad})
        return
    if bad:
        note(f"{bad} refs are damaged: vcc cache verify tells which")
    head = _HEAD if len(tiers) == 1 else (*_HEAD[:-1], "store", _HEAD[-1])
    lines = [_row(item, None if len(tiers) == 1 else tier) for tier, item in rows]
    out(columns([head, *lines]) if lines else f"no artifacts in {tiers[0].root}")


def du_command(cache_dir: options.CacheDir = None, json: options.Json = False) -> None:
    """Say what takes how much room."""
    from vcc.cache.care.room import room

    root = _root(cache_dir)
    found = room(root)
    total = sum(size for _, size in found.values())
    if json:
        parts = {name: {"files": count, "size": size} for name, (count, size) in found.items()}
        out_json({"root": str(root), "size": total, "parts": parts})
        return
    rows = [(name, str(count), size_text(size)) for name, (count, size) in found.items() if count]
    out(columns([("", "files", "size"), *rows, ("all", "", size_text(total))]))


def stats_command(cache_dir: options.CacheDir = None, json: options.Json = False) -> None:
    """Say what the store was good for: hits, misses, seconds saved. Counts may be lost."""
    from vcc.cache.care.stats import stats

    root = _root(cache_dir)
    found = stats(root)
    if json:
        models = [asdict(one) for one in found.models]
        out_json({"root": str(root), **asdict(found.total), "models": models})
        return
    head = ("artifacts", "size", "hits", "misses", "saved", "what")
    rows = [_stats_row(one, one.title) for one in found.models]
    out(columns([head, *rows, _stats_row(found.total, "all")]))


def dir_command(cache_dir: options.CacheDir = None, json: options.Json = False) -> None:
    """Print where the store lies."""
    from vcc.cache.store import Store

    local, *lower = Store.open(cache_dir).tiers
    if json:
        places = [str(tier.root) for tier in lower]
        out_json({"root": str(local.root), "exists": local.root.is_dir(), "lower": places})
    else:
        out(str(local.root))


def item_dict(item: Item) -> dict[str, object]:
    """An artifact for `--json`; times in seconds."""
    return {
        "artifact": item.artifact,
        "title": item.title,
        "size": item.size,
        "created": item.created,
        "age_s": round(item.age, 1),
        "idle_s": round(item.idle, 1),
        "build_ms": item.build_ms,
        "hits": item.hits,
        "pinned": item.pinned,
        "in_use": item.holders,
        **{name: item.shown.get(label, "") for name, label in SHOWN.items()},
        "max_loras": slots_of(item),
    }


def slots_of(item: Item) -> int:
    """Adapters that a step of an artifact can hold; 0 where its code has no place for any."""
    slots = item.shown.get("model.max_loras", "")
    return int(slots) if item.shown.get("model.enable_lora") == "true" and slots.isdecimal() else 0


def compile_text(item: Item) -> str:
    """The compile mode of an artifact, and whether its pieces are not compiled."""
    mode = item.shown.get(SHOWN["compile"], "-")
    eager = item.shown.get(SHOWN["backend"]) == "eager" and mode in _IN_PIECES
    return f"{mode} (eager)" if eager else mode


def dtype_text(item: Item) -> str:
    """The element type of an artifact, that of its KV cache where it is another, and its slots."""
    dtype, cache = (item.shown.get(SHOWN[name], "") for name in ("dtype", "kv_cache_dtype"))
    slots = slots_of(item)
    parts = (dtype or "-", f"{cache} KV" if cache else "", f"{slots} LoRA" if slots else "")
    return ", ".join(filter(None, parts))


_TEXTS = {"dtype": dtype_text, "compile": compile_text}


def _row(item: Item, tier: str | None) -> tuple[str, ...]:
    marks = (" (pinned)" if item.pinned else "") + (" (in use)" if item.holders else "")
    return (
        item.artifact[:12],
        age_text(item.age),
        age_text(item.idle),
        size_text(item.size),
        str(item.hits),
        *(_TEXTS[n](item) if n in _TEXTS else item.shown.get(SHOWN[n], "-") for n in _COLUMNS),
        *(() if tier is None else (tier,)),
        item.title + marks,
    )


def _stats_row(one: ModelStats, title: str) -> tuple[str, ...]:
    saved = age_text(one.saved_s)
    return (str(one.artifacts), size_text(one.size), str(one.hits), str(one.misses), saved, title)


def _root(cache_dir: Path | None) -> Path:
    from vcc.cache.settings import cache_root

    return cache_root(cache_dir)
