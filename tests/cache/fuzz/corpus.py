"""Saved inputs of the fuzz targets: one file a target, one input a line in base64.

`python tests/cache/fuzz/corpus.py` writes the seeds anew and keeps what fuzzing found.
"""

from __future__ import annotations

import base64
import io
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
MOST, LONGEST = 120, 6000


def load(name: str) -> list[bytes]:
    """The saved inputs of a target."""
    lines = (HERE / "corpus" / f"{name}.txt").read_text().split()
    return [base64.b64decode(line, validate=True) for line in lines]


def save(name: str, inputs: Iterable[bytes]) -> None:
    """Save short inputs, shortest first, each once."""
    kept = sorted({data for data in inputs if len(data) <= LONGEST}, key=lambda d: (len(d), d))
    lines = [base64.b64encode(data).decode() for data in kept[:MOST] if data]
    (HERE / "corpus" / f"{name}.txt").write_text("\n".join(lines) + "\n")


def unpack(name: str, folder: Path) -> None:
    """The saved inputs as files, as libFuzzer wants them."""
    for number, data in enumerate(load(name)):
        (folder / f"{number:04}").write_bytes(data)


def seeds() -> dict[str, list[bytes]]:
    """Good inputs of every target, made by the writers."""
    sys.path.insert(0, str(HERE.parents[1]))
    from support.stores import BLOBS, manifest_of, quiet

    from vcc.cache.pack.write import content_of, write_pack
    from vcc.cache.request import encode_ref
    from vcc.cache.trust.statement import Statement

    with tempfile.TemporaryDirectory(prefix="vcc-seeds-") as folder:
        store = quiet(Path(folder) / "store")
        entry = store.publish(manifest_of(), {name: data[:40] for name, data in BLOBS.items()})
        small = store.publish(manifest_of("none", 1, info={}), {"program": b"{}"})
        manifests = [store.load(one).manifest.encode() for one in (entry, small)]
        packs = []
        for entries in ([small], [entry, small]):
            stream = io.BytesIO()
            write_pack(content_of(store, entries), stream.write)
            packs.append(stream.getvalue())
    statement = Statement(
        artifact=entry.artifact,
        key="0a" * 32,
        builder="ci-main",
        source_commit="ab" * 20,
        claims={"repository": "https://example.org/x"},
        epoch=3,
        signed_at=1_700_000_000,
        expires_at=0,
        format_version="1.0",
        signature="0b" * 64,
    )
    texts = (
        "size>1GB",
        "age <= 30d",
        "id=0123456",
        "model~demo",
        "builder.torch=2.13",
        "pinned=no",
    )
    refs = [encode_ref(entry), encode_ref(small)]
    return {
        "manifest": manifests,
        "ref": [*refs, *(ref[:-66] for ref in refs)],  # also without the sum, see targets.py
        "pack": [*packs, *map(bare, packs)],
        "signature": [statement.encode()],
        "filter": [text.encode() for text in texts],
    }


def bare(pack: bytes) -> bytes:
    """A pack without its head, the index parted from the files; see targets.py."""
    from vcc.cache.pack.form import HEAD, length_of

    end = HEAD + length_of(pack[:HEAD])
    return pack[HEAD:end] + b"\n\n" + pack[end:]


if __name__ == "__main__":
    for name, good in seeds().items():
        known = load(name) if (HERE / "corpus" / f"{name}.txt").exists() else []
        save(name, [*good, *known])
