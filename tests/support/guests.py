"""Guests that need no torch: small Python programs which fill and read their caches."""

from __future__ import annotations

import sys
from pathlib import Path

from vcc.cache.store import Store
from vcc.engine.guest.command import read_command
from vcc.engine.guest.identity import Identity
from vcc.engine.guest.run import Guest, GuestReport, run_guest
from vcc.engine.guest.save import Bounds

FIELDS = {
    "guest.kind": "inductor and triton caches 1",
    "guest.name": "test",
    "guest.script": "none",
    "host.cpu": "x86-64-v3 0",
    "version.torch": "2.13.0",
}

HEAD = """
import json, os, pathlib, sys
inductor = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
triton = pathlib.Path(os.environ["TRITON_CACHE_DIR"])

def make(path, data=b"data"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)

def graph(name):
    return inductor / "fxgraph" / name[:2] / name / "code"

def kernel(key, name="k"):
    folder = triton / key
    make(folder / f"{name}.cubin", b"cubin of " + key.encode())
    paths = {f"{name}.cubin": str(folder / f"{name}.cubin")}
    make(folder / f"__grp__{name}.json", json.dumps({"child_paths": paths}).encode())
    return folder
"""


def identity(name: str = "test", script: str = "none", **more: str) -> Identity:
    """The request of a test's guest."""
    return Identity({**FIELDS, "guest.name": name, "guest.script": script, **more})


def guest(store: Store, code: str, **more: object) -> Guest:
    """A guest that runs lines of Python after `HEAD`."""
    command = read_command([sys.executable, "-c", HEAD + code])
    fields: dict[str, object] = {"bounds": Bounds(1 << 30), "identity": identity(), **more}
    return Guest(command=command, store=store, **fields)  # type: ignore[arg-type]


def ran(store: Store, code: str, **more: object) -> GuestReport:
    """Run it."""
    return run_guest(guest(store, code, **more))


def folders() -> list[Path]:
    """Private folders that are left in the temporary folder."""
    import tempfile

    return sorted(Path(tempfile.gettempdir()).glob("vcc-run-*"))
