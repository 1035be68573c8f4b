"""A store of many artifacts whose refs are as large as real ones; their blobs are tiny."""

from __future__ import annotations

from pathlib import Path

from support.stores import quiet
from vcc.cache.digest import Digest
from vcc.cache.key import Key
from vcc.cache.manifest import Manifest
from vcc.cache.request import Entry, encode_ref

SIZES = "[" + ",".join(str(8 * n) for n in range(1, 36)) + "]"
"""As the capture sizes of a decoder stand in its request."""


def fill(root: Path, count: int, models: int) -> None:
    """Put `count` artifacts of `models` models into a store.

    They are written without syncing each file; every ref leads to its manifest and blob.
    """
    first = quiet(root).publish(_manifest(0, models), {"program": b"0"})
    assert len(encode_ref(first)) > 1500
    for number in range(1, count):
        data = b"%d" % number
        manifest = _manifest(number, models).with_blobs({"program": data})
        text = manifest.encode()
        entry = Entry.of(manifest, Digest.of(text))
        for content in (data, text):
            digest = Digest.of(content).hex
            _put(root / "v1/cas/sha256" / digest[:2] / digest, content)
        _put(root / "v1/refs" / entry.base.digest.hex / entry.artifact, encode_ref(entry))


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o600)


def _manifest(number: int, models: int) -> Manifest:
    model = number % models
    fields = {
        "model.digest": Digest.of(b"model %d" % model).hex,
        "model.dtype": "bf16",
        "model.quantisation": "null",
        "target": "cpu:x86-64-v3",
        "config.mode": "VCC_COMPILE",
        "config.cuda_graph_mode": "full_and_piecewise",
        "config.capture_sizes": SIZES,
        "config.splitting_ops": '["vcc::kv_write","vcc::paged_attention"]',
        "config.number": str(number),
        **{f"config.pass_config.field_{n}": "true" for n in range(18)},
    }
    open_fields = tuple(sorted(label for label in fields if label.startswith("config.")))
    return Manifest(
        request=Key.of(fields).entries,
        open_fields=open_fields,
        code_key=Key.of({"passes": "1"}).entries,
        plan_key=Key.of({"block": "16"}).entries,
        host_rules={"arch": "x86-64-v3", "loader": "TorchLoader", "torch": "2.13"},
        builder={"torch": "2.13.0"},
        title=f"model {model} · bf16 · VCC_COMPILE · full",
        info={},
        created=1_700_000_000 + number,
        build_ms=1000 + number % 5000,
    )
