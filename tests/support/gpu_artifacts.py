"""GPU artifacts for tests of the commands: a table of every kind of record, made-up cubins."""

from __future__ import annotations

import struct
from dataclasses import replace
from hashlib import sha256

from support.tables import every_kind
from vcc.cache.manifest import Manifest
from vcc.cache.request import Entry
from vcc.cache.store import Store
from vcc.engine.graphs.planner.figures import figures
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.types import Kernel, NodeTable, Role
from vcc.engine.models.source import open_source


def cubin(*functions: tuple[str, int, int], arch: int = 90) -> bytes:
    """An ELF file as `read_cubin` reads it: (name, registers, bytes of parameters) each.

    No code is in it: sections, symbols and attributes only.
    """
    texts, symbols, info, rows = b"\0", bytes(24), b"", []
    sections: list[tuple[str, int, bytes, int]] = []
    for index, (name, registers, param_bytes) in enumerate(functions, 1):
        symbols += struct.pack("<IBBHQQ", len(texts), 0x12, 0, 0, 0, 0)
        texts += name.encode() + b"\0"
        info += struct.pack("<BBHII", 4, 0x2F, 8, index, registers)
        info += struct.pack("<BBHII", 4, 0x11, 8, index, 0)
        own = struct.pack("<BBH", 3, 0x19, param_bytes)
        sections += [(f".text.{name}", 1, bytes(128), 0), (f".nv.info.{name}", 1 << 30, own, 0)]
        sections.append((f".nv.shared.{name}", 8, bytes(1024), 0))
    sections += [(".strtab", 3, texts, 0), (".symtab", 2, symbols, 0), (".nv.info", 1, info, 0)]
    names = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in sections) + b".shstrtab\0"
    sections.append((".shstrtab", 3, names, 0))
    body, at = b"", 64
    for name, kind, data, link in sections:
        place = names.index(b"\0" + name.encode() + b"\0") + 1
        rows.append(struct.pack("<IIQQQQIIQQ", place, kind, 0, 0, at, len(data), link, 0, 1, 0))
        stored = b"" if kind == 8 else data
        body, at = body + stored, at + len(stored)
    head = b"\x7fELF\x02\x01\x01\x33\x07" + bytes(7)
    header = struct.pack(
        *("<16sHHIQQQIHHHHHH", head, 2, 190, 1, 0, 0, at, arch | arch << 16),
        *(64, 0, 0, 64, len(rows) + 1, len(rows)),
    )
    return header + body + bytes(64) + b"".join(rows)


def table_and_blobs() -> tuple[NodeTable, dict[str, bytes]]:
    """A table whose cubins are there: two functions in one, one in another."""
    made = every_kind()
    first = cubin(("kernel", 40, 56), ("reduce", 18, 48))
    second = cubin(("gemm", 168, 72))
    digests = [sha256(data).hexdigest() for data in (first, second)]
    homes = {"kernel": digests[0], "reduce": digests[0], "gemm": digests[1]}
    kernels = tuple(_moved(one, homes[one.function]) for one in made.kernels)
    cubins = tuple(zip(digests, (len(first), len(second)), strict=True))
    table = replace(made, kernels=kernels, cubins=cubins)
    blobs = {"table/step": encode(table)}
    blobs |= {f"cubin/{d}": data for d, data in zip(digests, (first, second), strict=True)}
    for tensor in table.tensors:
        if tensor.role is Role.CONSTANT:
            blobs[f"constant/{tensor.target}"] = bytes(4)
    return table, blobs


def _moved(kernel: Kernel, cubin: str) -> Kernel:
    return replace(kernel, cubin=cubin)


def manifest(**changes: object) -> Manifest:
    """The manifest of a GPU build of the demo, with made-up keys."""
    digest = open_source("demo", weights="none").model_key().digest.hex
    table, _ = table_and_blobs()
    fields: dict[str, object] = {
        "request": (("model.digest", digest), ("target", "sm_90")),
        "open_fields": (),
        "code_key": (("torch", "2.13"),),
        "host_rules": {"loader": "Player", "arch": "sm_90", "driver": "12000", "tables": "2"},
        "title": "demo for sm_90",
        "info": {
            "bindings": {"model.w": "w"},
            "device": "NVIDIA H200",
            "toolkit": "12.8",
            "compilation": {"capture_sizes": [1, 2, 4]},
            "table": figures(table, encode(table)),
        },
    }
    return Manifest(**(fields | changes))  # type: ignore[arg-type]


def publish(store: Store, blobs: dict[str, bytes] | None = None, **changes: object) -> Entry:
    """Store a GPU artifact."""
    return store.publish(manifest(**changes), table_and_blobs()[1] if blobs is None else blobs)
