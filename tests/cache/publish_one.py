"""Publish one artifact into the store at argv[1]: the process that the kill matrix kills."""

from __future__ import annotations

import sys
from pathlib import Path

from support.stores import manifest_of

from vcc.cache.store import Store

Store.open(Path(sys.argv[1])).publish(
    manifest_of(),
    {"program": b"new program", "constant/inv_freq": bytes(100), "piece/0.so": b"\x7fELFnew"},
)
