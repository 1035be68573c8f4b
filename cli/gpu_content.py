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
        *(str(getattr(shape, name)) for name in ("m", "n", "k")),
        f"{shape.dtype} by {shape.scales}" if shape.scales else shape.dtype,
        one.route,
        *("-" if time is None else f"{time:.1f}" for time in times),
    )


def gpu_sections(manifest: Manifest) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Titles and pairs: what the code is for, its plan, its regions, whose kernels it carries."""
    info = manifest.info
    vendors = _vendors(info.get("vendor_cubins"))
    if vendors:
        yield "cubins of vendors' libraries", vendors
    tables = _tables(info)
    if not tables:
        return
    said = info.get("compilation")
    sizes = said.get("capture_sizes") if isinstance(said, dict) else None
    cubins = [one.size for name, one in manifest.blobs.items() if name.startswith("cubin/")]
    kernels = _span([one.get("kernels") for one in tables])
    each = " a table" if len(tables) > 1 else ""
    yield (
        "GPU code",
        {
            "device": str(info.get("device", "-")),
            "toolkit": str(info.get("toolkit", "-")),
            "kernels": f"{kernels}{each} in {len(cubins)} cubins",
            "cubins": size_text(sum(cubins)),
            "tables": f"{len(tables)}, {size_text(_total(tables, 'bytes'))}",
            "nodes": _counts(tables, "nodes"),
            "segments": _counts(tables, "segments"),
            "products": _span([len(one.get("gemms", ())) for one in tables]),
            "graph sizes": _sizes(sizes),
        },
    )
    yield "regions at the largest sizes", _regions(tables[0].get("regions"))


def _tables(info: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Figures of the step's table, or of the table of each range, which share their regions."""
    ranges = info.get("ranges")
    listed = ranges if isinstance(ranges, list) else []
    found = [info.get("table"), *(one.get("table") for one in listed if isinstance(one, dict))]
    return [one for one in found if isinstance(one, dict)]


def _sizes(found: Any) -> str:
    from vcc.engine.listed import listed

    return listed([*map(str, found)] if isinstance(found, list) else []) or "none"


def _total(tables: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(found for one in tables if isinstance(found := one.get(name), int))


def _span(numbers: Sequence[Any]) -> str:
    """One number for all tables, or the fewest and the most."""
    found = sorted({one for one in numbers if isinstance(one, int)})
    return " to ".join(str(one) for one in dict.fromkeys((*found[:1], *found[-1:]))) or "-"


def _vendors(rows: Any) -> dict[str, str]:
    """Beginning of a cubin's digest to its library; a manifest from elsewhere may say anything."""
    listed = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return {str(row.get("digest", "?"))[:16]: str(row.get("library", "?")) for row in listed}


def _counts(tables: Sequence[Mapping[str, Any]], name: str) -> str:
    """Counts by kind."""
    found = [counts for one in tables if isinstance(counts := one.get(name), dict)]
    kinds = dict.fromkeys(kind for one in found for kind in one)
    return ", ".join(f"{_span([one.get(kind, 0) for one in found])} {kind}" for kind in kinds)


def _regions(found: Any) -> dict[str, str]:
    pairs = found.items() if isinstance(found, dict) else ()
    return {name: size_text(size) if isinstance(size, int) else str(size) for name, size in pairs}
