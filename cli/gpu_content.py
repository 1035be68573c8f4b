"""What `vcc inspect artifact` adds for a GPU: figures of the table, ways of its products."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vcc.cli.console import size_text

if TYPE_CHECKING:
    from vcc.cache.loaded import Loaded
    from vcc.cache.manifest import Manifest
    from vcc.cache.store import Store
    from vcc.engine.tune.store import GemmChoice


def measured(store: Store, loaded: Loaded) -> tuple[GemmChoice, ...]:
    """Measured choices for the products of a GPU artifact; none before `vcc tune`."""
    if not any(name.startswith("table/") for name in loaded.manifest.blobs):
        return ()
    from vcc.engine.tune.store import GemmStore, choices

    return choices(GemmStore.open(store.root), loaded)


def gemm_rows(products: Sequence[GemmChoice]) -> list[tuple[str, ...]]:
    """A row a product: shape, way, and what both ways cost in microseconds."""
    head = ("GPU", "rows", "n", "k", "dtype", "way", "cuBLASLt us", "Triton us")
    return [head, *(_row(one) for one in products)]


def _row(one: GemmChoice) -> tuple[str, ...]:
    shape = one.shape
    times = (one.cublaslt_us, one.triton_us)
    return (
        str(one.gpu),
        *(str(getattr(shape, name)) for name in ("m", "n", "k", "dtype")),
        one.route,
        *("-" if time is None else f"{time:.1f}" for time in times),
    )


def gpu_sections(manifest: Manifest) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Titles and pairs: what the code is for, its plan, its regions, whose kernels it carries."""
    info = manifest.info
    vendors = _vendors(info.get("vendor_cubins"))
    if vendors:
        yield "cubins of vendors' libraries", vendors
    table = info.get("table")
    if not isinstance(table, dict):
        return
    sizes = info.get("compilation", {}).get("capture_sizes") or ()
    yield (
        "GPU code",
        {
            "device": str(info.get("device", "-")),
            "toolkit": str(info.get("toolkit", "-")),
            "kernels": f"{table.get('kernels')} in {table.get('cubins')} cubins",
            "cubins": size_text(int(table.get("cubin_bytes", 0))),
            "table": size_text(int(table.get("bytes", 0))),
            "nodes": _counts(table.get("nodes")),
            "segments": _counts(table.get("segments")),
            "products": str(len(table.get("gemms", ()))),
            "graph sizes": ", ".join(map(str, sizes)) or "none",
        },
    )
    yield "regions at the largest sizes", _regions(table.get("regions"))


def _vendors(rows: Any) -> dict[str, str]:
    """Beginning of a cubin's digest to its library; a manifest from elsewhere may say anything."""
    listed = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return {str(row.get("digest", "?"))[:16]: str(row.get("library", "?")) for row in listed}


def _counts(found: Any) -> str:
    pairs = found.items() if isinstance(found, dict) else ()
    return ", ".join(f"{count} {name}" for name, count in pairs)


def _regions(found: Any) -> dict[str, str]:
    pairs = found.items() if isinstance(found, dict) else ()
    return {name: size_text(size) if isinstance(size, int) else str(size) for name, size in pairs}
