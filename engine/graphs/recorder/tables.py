"""Three captures of a model become blobs: a node table a descriptor, and the cubins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcc.cache.errors import GraphError
from vcc.engine.graphs.recorder.addresses import REPORT, Addresses
from vcc.engine.graphs.recorder.draft import Draft
from vcc.engine.graphs.recorder.known import Known
from vcc.engine.graphs.recorder.merge import Merged, merge_parts
from vcc.engine.graphs.recorder.origins import vendor_cubins
from vcc.engine.graphs.recorder.parts import Part, read_parts
from vcc.engine.graphs.recorder.places import Move, Places
from vcc.engine.graphs.recorder.plan import KINDS, Descriptor, Recording
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.types import Kernel, NodeTable, Region, Symbol

REGION_ALIGNMENT = 512


@dataclass(frozen=True, slots=True)
class Tables:
    """Blobs by name, and figures for the manifest.

    `unsteady` names words that were zeroed though they moved with the placement, or were addresses
    in regions (words.py): what to look at where a table does not give what the model gave.
    """

    blobs: Mapping[str, bytes]
    info: Mapping[str, Any]
    unsteady: tuple[str, ...] = ()


def tables_of(recording: Recording, folders: tuple[Path, Path, Path]) -> Tables:
    """Merge what three processes left: at the first place, the second, the first again.

    Raises:
        GraphError: a graph cannot be moved; node, kernel and offset are named.
    """
    reports = [json.loads((folder / REPORT).read_text("utf-8")) for folder in folders]
    first, second, again = (Known.of_folder(folder) for folder in folders)
    bases = [Addresses.of_report(folder / REPORT).bases for folder in folders]
    used = tuple(max(sizes) for sizes in zip(*(one["used"] for one in reports), strict=True))
    moves = [
        Move(index, bases[0][index], bases[1][index], size)
        for index, size in enumerate(used)
        if size
    ]
    places = Places(moves, (first, second, again))
    blobs: dict[str, bytes] = {}
    cubins: dict[str, bytes] = {}
    unsteady: list[str] = []
    kernels: list[Kernel] = []
    info: dict[str, Any] = {"recorded": []}
    info |= {name: reports[0].get(name, "") for name in ("device", "cuda")}
    for descriptor in recording.descriptors:
        merged = merge_parts(_parts(folders, descriptor), places)
        for digest in merged.digests:
            cubins.setdefault(digest, (folders[0] / "cubin" / digest).read_bytes())
        sizes = {digest: len(cubins[digest]) for digest in merged.digests}
        blobs[descriptor.blob] = encode(_table(recording, descriptor, merged, used, sizes))
        info["recorded"].append(_figures(descriptor, merged))
        kernels += merged.kernels
        unsteady += (f"{descriptor.file}: {one}" for one in merged.unsteady)
    blobs |= {f"cubin/{digest}": data for digest, data in sorted(cubins.items())}
    info["vendor_cubins"] = vendor_cubins(kernels)
    return Tables(blobs, info, tuple(unsteady))


def _parts(
    folders: tuple[Path, Path, Path], descriptor: Descriptor
) -> list[Part[tuple[Draft, Draft, Draft]]]:
    """The parts of a step, each with its graph of all three captures."""
    each = [
        read_parts((folder / f"{descriptor.file}.json").read_text("utf-8")) for folder in folders
    ]
    names = [[(part.kind, part.name) for part in parts] for parts in each]
    if not names[0] == names[1] == names[2]:
        raise GraphError(
            "two captures of one step differ",
            f"they are broken into {', '.join(str(len(parts)) for parts in each)} parts",
            "the model's forward must do the same in every run: no random choices, no state",
        )
    return [
        Part(first.kind, first.name, (first.held, second.held, again.held))
        for first, second, again in zip(*each, strict=True)
    ]


def _table(
    recording: Recording,
    descriptor: Descriptor,
    merged: Merged,
    used: tuple[int, ...],
    sizes: Mapping[str, int],
) -> NodeTable:
    steps = {"T": descriptor.tokens, "B": descriptor.seqs, "K": recording.blocks}
    return NodeTable(
        symbols=tuple(Symbol(name, size, size) for name, size in steps.items()),
        regions=tuple(
            Region(kind, size, alignment=REGION_ALIGNMENT)
            for kind, size in zip(KINDS, used, strict=True)
        ),
        tensors=tuple(slot.tensor(region, descriptor) for region, slot in recording.slots()),
        cubins=tuple(sizes.items()),
        kernels=merged.kernels,
        nodes=merged.nodes,
        segments=merged.segments,
        edges=merged.edges,
    )


def _figures(descriptor: Descriptor, merged: Merged) -> dict[str, Any]:
    return {
        "tokens": descriptor.tokens,
        "seqs": descriptor.seqs,
        "uniform": descriptor.uniform,
        "parts": len(merged.segments),
        "nodes": len(merged.nodes),
        "pointers": merged.pointers,
        "noise_bytes": merged.noise,
        "edges": len(merged.edges),
    }
