"""A damaged or unwritable store costs a build at most: it is named, and no token is ever wrong."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.flow import ask, built
from support.stores import blob_path, child, exit_of, flipped, overwrite, ref_path

from vcc.cache.request import Entry
from vcc.cache.store import Store
from vcc.cli import main
from vcc.engine.compile import pool
from vcc.engine.types import CompiledPiece, Piece

Vcc = Callable[..., Any]

LIMITS = {"dtype": "fp32", "max_num_seqs": 8, "max_num_batched_tokens": 128}
CONFIG = json.dumps({"custom_ops": ["none", "+rms_norm", "+silu_and_mul", "+rotary_embedding"]})
"""The demo with operators called inside its pieces: an artifact with every kind of blob."""

RUN = (
    *("run", "demo", "--prompt", "It is a truth", "--max-new-tokens", "6", "--golden", "all"),
    *("--compilation-config", CONFIG, "--json"),
    *(word for name, value in LIMITS.items() for word in (f"--{name.replace('_', '-')}", value)),
)
KINDS = ("program", "library", "table", "constant", "golden", "manifest", "ref")


@dataclass(frozen=True)
class Stored:
    """A store that holds one good artifact, and what it answers."""

    root: Path
    entry: Entry
    blobs: Mapping[str, bytes]
    tokens: list[int]

    def names(self, kind: str) -> list[str]:
        """The blobs of a kind."""
        fits = {
            "library": lambda name: name.endswith(".so"),
            "table": lambda name: name.startswith("piece/") and name.endswith(".json"),
        }
        return sorted(filter(fits.get(kind, lambda name: name.startswith(kind)), self.blobs))

    def file(self, kind: str) -> Path:
        """The file of the first blob of a kind, of the manifest, or of the ref."""
        if kind in ("manifest", "ref"):
            entry = self.entry
            return (
                blob_path(self.root, entry.id) if kind == "manifest" else ref_path(self.root, entry)
            )
        return self.place(self.names(kind)[0])

    def place(self, name: str) -> Path:
        """The file of a blob."""
        loaded = Store.open(self.root).load(self.entry)
        return blob_path(self.root, loaded.manifest.blobs[name].sha256)


@pytest.fixture(scope="module")
def pristine(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """The artifact alone in a store."""
    made = built(ask("demo", config=CONFIG, **LIMITS), Store.open(shelf))
    blobs = made.loaded.read_all()
    root = tmp_path_factory.mktemp("pristine") / "store"
    entry = Store.open(root).publish(made.loaded.manifest, blobs)
    return Stored(root, entry, blobs, [])


@pytest.fixture
def stored(pristine: Stored, vcc: Vcc, tmp_path: Path) -> Stored:
    """A copy to damage, and the tokens that it gives as long as it is whole."""
    root = Path(shutil.copytree(pristine.root, tmp_path / "store"))
    done = vcc(*RUN, "--require-warm", store=root)
    assert done.code == 0, done.out
    return Stored(root, pristine.entry, pristine.blobs, tokens(done))


@pytest.fixture
def rebuilds(pristine: Stored, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Compiling takes the pieces from the good artifact: a rebuild without the wait."""
    calls: list[int] = []

    def compile_pieces(pieces: Sequence[Piece], *rest: object) -> tuple[CompiledPiece, ...]:
        calls.append(len(pieces))
        return tuple(_compiled(piece.id, pristine.blobs) for piece in pieces)

    monkeypatch.setattr(pool, "compile_pieces", compile_pieces)
    return calls


def _compiled(name: str, blobs: Mapping[str, bytes]) -> CompiledPiece:
    table, golden = blobs.get(f"piece/{name}.json"), blobs.get(f"golden/{name}")
    return CompiledPiece(name, blobs[f"piece/{name}.so"], table, golden, 0.1)


def tokens(done: Any) -> list[int]:
    return list(done.json["prompts"][0]["token_ids"])


def flip(file: Path) -> None:
    """Change one bit in the middle."""
    data = file.read_bytes()
    overwrite(file, flipped(data, len(data) // 2, 3))


def test_the_artifact_has_blobs_of_every_kind(pristine: Stored) -> None:
    assert all(pristine.names(kind) for kind in KINDS[:5])


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_refused_when_nothing_may_be_built(
    stored: Stored, vcc: Vcc, kind: str
) -> None:
    """Named in the first run; a plain miss from then on."""
    file = stored.file(kind)
    flip(file)
    first = vcc(*RUN, "--require-warm", store=stored.root)
    assert (first.code, first.json["error"]["id"]) == (7, "DAMAGED")
    assert file.name[:12] in first.json["error"]["what"]
    assert "vcc compile demo" in first.json["error"]["hint"]
    second = vcc(*RUN, "--require-warm", store=stored.root)
    assert (second.code, second.json["error"]["id"]) == (1, "MISSING_ARTIFACT")


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_named_and_rebuilt(
    stored: Stored,
    vcc: Vcc,
    rebuilds: list[int],
    caplog: pytest.LogCaptureFixture,
    kind: str,
) -> None:
    flip(stored.file(kind))
    healed = vcc(*RUN, store=stored.root)
    assert healed.code == 0
    assert tokens(healed) == stored.tokens
    assert rebuilds == [3]
    assert f"artifact {stored.entry.artifact[:12]} is bad and was set aside" in caplog.text
    again = vcc(*RUN, "--require-warm", store=stored.root)
    assert (again.code, tokens(again)) == (0, stored.tokens)
    assert again.json["counters"]["hits"] == 1


def truncate(stored: Stored) -> None:
    file = stored.file("library")
    overwrite(file, file.read_bytes()[:-1])


def empty(stored: Stored) -> None:
    overwrite(stored.file("library"), b"")


def zero(stored: Stored) -> None:
    """A lost write: a block of zeros, the size unchanged."""
    file = stored.file("constant")
    overwrite(file, bytes(len(file.read_bytes())))


def swap(stored: Stored) -> None:
    """Two libraries under each other's names, both whole."""
    first, second = (stored.place(name) for name in stored.names("library")[:2])
    data = first.read_bytes(), second.read_bytes()
    overwrite(first, data[1])
    overwrite(second, data[0])


def lose(stored: Stored) -> None:
    stored.file("library").unlink()


@pytest.mark.parametrize("damage", [truncate, empty, zero, swap, lose], ids=lambda f: f.__name__)
def test_other_damage_is_rebuilt_too(
    stored: Stored, vcc: Vcc, rebuilds: list[int], damage: Callable[[Stored], None]
) -> None:
    damage(stored)
    refused = vcc(
        *RUN, "--require-warm", store=Path(shutil.copytree(stored.root, f"{stored.root}-2"))
    )
    assert refused.code in (1, 7)
    assert refused.json["error"]["why"]
    healed = vcc(*RUN, store=stored.root)
    assert (healed.code, tokens(healed), rebuilds) == (0, stored.tokens, [3])
    again = vcc(*RUN, "--require-warm", store=stored.root)
    assert (again.code, tokens(again)) == (0, stored.tokens)


def test_damage_falls_back_to_another_artifact_that_answers(stored: Stored, vcc: Vcc) -> None:
    """Slower code of the same model, found under the same request, and said so."""
    assert (
        vcc("compile", *RUN[1:2], "--dtype", "fp32", "--compile", "none", store=stored.root).code
        == 0
    )
    flip(stored.file("library"))
    words = ("run", "demo", "--dtype", "fp32", *RUN[2:6], "--json", "--require-warm")
    done = vcc(*words, store=stored.root)
    assert (done.code, tokens(done)) == (0, stored.tokens)
    assert f"artifact {stored.entry.artifact[:12]} is damaged" in done.err
    assert done.json["artifact"] != stored.entry.artifact


def test_compile_rebuilds_what_is_damaged(stored: Stored, vcc: Vcc, rebuilds: list[int]) -> None:
    flip(stored.file("program"))
    done = vcc("compile", "demo", *RUN[8:], store=stored.root)
    assert done.code == 0
    assert (done.json["reused"], rebuilds) == (False, [3])
    assert f"artifact {stored.entry.artifact[:12]} is damaged" in done.err
    assert vcc(*RUN, "--require-warm", store=stored.root).code == 0


# --- a store that cannot be written ----------------------------------------------------------


@pytest.fixture
def locked() -> Iterator[Path]:
    """A folder that this test's user may read and not write; outside pytest's private folders."""
    with tempfile.TemporaryDirectory(prefix="vcc-test-", dir="/tmp") as place:
        root = Path(place) / "store"
        root.mkdir()
        Path(place).chmod(0o555)
        root.chmod(0o555)
        yield root
        Path(place).chmod(0o755)
        root.chmod(0o755)


def unprivileged(words: Sequence[object], store: Path, out: Path) -> tuple[int, str, str]:
    """Run a command as an account that may not write everywhere; root becomes nobody.

    Returns its exit code and what it printed.
    """
    texts = out / "out", out / "err"

    def work() -> None:
        os.environ["VCC_CACHE_DIR"] = str(store)
        os.environ["HOME"] = "/nonexistent"
        code = main.run([str(word) for word in words])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    streams = [open(text, "w") for text in texts]  # noqa: SIM115 (opened as the present user)
    before, sys.stdout, sys.stderr = (sys.stdout, sys.stderr), *streams
    try:
        code = exit_of(child(work, uid=65534 if os.geteuid() == 0 else None))
    finally:
        (sys.stdout, sys.stderr), _ = before, [stream.close() for stream in streams]
    return code, *(text.read_text() for text in texts)


def test_a_store_that_cannot_be_written_costs_the_storing_only(
    locked: Path, tmp_path: Path, rebuilds: list[int], stored: Stored
) -> None:
    code, out, err = unprivileged(RUN, locked, tmp_path)
    assert code == 0, err + out
    report = json.loads(out)
    assert report["prompts"][0]["token_ids"] == stored.tokens
    assert report["artifact"] is None
    assert report["counters"]["misses"] == 1
    assert "the artifact was not stored" in err
    assert str(locked) in err
    assert "ermission denied" in err
    assert list(locked.iterdir()) == []


def test_compile_into_a_store_that_cannot_be_written_fails(locked: Path, tmp_path: Path) -> None:
    eager = ("compile", "demo", "--compile", "none")
    code, out, err = unprivileged(eager, locked, tmp_path)
    assert code == 5, err
    assert out == ""
    assert "error: the artifact was built but not stored" in err
    assert str(locked) in err
    assert "--cache-dir" in err
    code, out, _ = unprivileged(
        ("compile", "demo", "--compile", "none", "--json"), locked, tmp_path
    )
    assert json.loads(out)["error"]["exit"] == code == 5


def test_an_unwritable_report_is_said(vcc: Vcc, stored: Stored) -> None:
    done = vcc(*RUN, "--require-warm", "--report", "/proc/none/report.json", store=stored.root)
    assert done.code == 5
    assert "cannot write the report" in done.err + done.out
