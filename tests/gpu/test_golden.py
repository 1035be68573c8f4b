"""Goldens on a real device: those of a build hold, and a wrong reference is found and named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from support.checkpoints import make_checkpoint
from support.gpu_jobs import vcc, words

from vcc.cache.store import Store
from vcc.engine.graphs.golden import Golden

pytestmark = pytest.mark.gpu

OPTIONS = {"target": "sm_90", "mode": "full", "dtype": "bf16", "max_num_seqs": 16}
DEMO = OPTIONS | {"max_model_len": 512}
QWEN = OPTIONS | {"max_model_len": 256}
PROMPT = ("--prompt", "It is a truth", "--max-new-tokens", 4, "--require-warm", "--json")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the demo for this device."""
    store = tmp_path_factory.mktemp("golden") / "store"
    done = vcc("compile", "demo", *words(DEMO), store=store)
    assert done.code == 0, done.text[-4000:]
    return store


def test_all_goldens_of_the_demo_hold(shelf: Path) -> None:
    done = vcc("verify", "demo", "--run", "--json", store=shelf)
    assert done.code == 0, done.text[-2000:]
    assert len(done.json["run"]["checked"]) == 3
    assert done.json["run"]["without"] == {}


def test_all_goldens_of_a_redrawn_decoder_hold(tmp_path: Path) -> None:
    model = make_checkpoint(tmp_path / "qwen3", "qwen3", dtype="bfloat16", head_dim=64)
    done = vcc("compile", model, *words(QWEN), store=tmp_path / "store")
    assert done.code == 0, done.text[-4000:]
    done = vcc("verify", model, "--run", "--json", store=tmp_path / "store")
    assert done.code == 0, done.text[-2000:]
    assert done.json["run"]["checked"]
    assert done.json["run"]["without"] == {}


@pytest.mark.parametrize(("which", "share"), [("one", 0.1), ("all", 0.4)])
def test_a_boot_checks_them_within_a_share_of_its_time(
    shelf: Path, which: str, share: float
) -> None:
    """A share, since other tests may hold the machine meanwhile."""
    asked = ("run", "demo", *words(DEMO), "--golden", which, *PROMPT)
    best = min(_golden_share(vcc(*asked, store=shelf).json["phases"]) for _ in range(3))
    assert 0 < best < share


def _golden_share(phases: Mapping[str, float]) -> float:
    return phases["golden"] / sum(phases.values())


def test_a_wrong_reference_is_named(shelf: Path, tmp_path: Path) -> None:
    (entry,) = Store.open(shelf).entries()
    loaded = Store.open(shelf).load(entry)
    blobs = loaded.read_all()
    name = max(n for n in blobs if n.startswith("golden/"))
    golden = Golden.decode(blobs[name])
    flipped = replace(golden, references=tuple(-one for one in golden.references))
    own = tmp_path / "store"
    Store.open(own).publish(loaded.manifest, blobs | {name: flipped.encode()})

    piece = name.removeprefix("golden/")[:12]
    done = vcc("verify", "demo", "--run", store=own)
    assert done.code == 1
    assert f"piece {piece} computes something else" in done.text
    done = vcc("run", "demo", *words(DEMO), "--golden", "all", *PROMPT, store=own)
    assert done.code == 7, done.text[-2000:]
    assert f"piece {piece} computes something else" in done.text
