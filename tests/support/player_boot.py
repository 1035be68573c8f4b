"""A boot of a toy step on the libcuda double, without a session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from support.step_tables import (
    BLOCK,
    BLOCKS_EACH,
    CUBIN,
    DIGEST,
    HIDDEN,
    SEQS,
    TOKENS,
    VOCAB,
    toy_step,
)
from vcc.cache.loaded import Loaded
from vcc.cache.manifest import Manifest
from vcc.engine.config.modes import CompileMode, GraphMode
from vcc.engine.config.types import CompilationConfig, ModelConfig
from vcc.engine.events import NotedEvents, NullEvents
from vcc.engine.models.tensor_info import TensorInfo
from vcc.engine.monitor import Counters, Ledger
from vcc.engine.runtime.player.load import load_player
from vcc.engine.runtime.player.runner import PlayerRunner
from vcc.engine.runtime.settings import Boot, Settings

RULES = {"loader": "Player", "arch": "sm_90", "driver": "12040", "tables": "2"}


def boot(weights: Path, **changes: object) -> Boot:
    """What a session hands to the loader."""
    blobs = {"table/step": toy_step(layers=2).data, f"cubin/{DIGEST}": CUBIN}
    blobs |= changes.pop("blobs", {})  # type: ignore[arg-type]
    if any(name.startswith("table/step/") for name in blobs):
        del blobs["table/step"]
    manifest = Manifest(
        request=(("model", "toy"),),
        open_fields=(),
        code_key=(("a", "b"),),
        host_rules=dict(changes.pop("rules", RULES)),  # type: ignore[call-overload]
        title="toy",
        info={"bindings": {"w": 'tensor("stored")'}, **changes.pop("info", {})},  # type: ignore[dict-item]
    )
    stored = TensorInfo("bfloat16", (VOCAB, HIDDEN), weights, 64, 64 + 2 * VOCAB * HIDDEN)
    tensors = changes.pop("tensors", {"stored": stored})
    settings = Settings(
        ModelConfig(
            source="toy",
            max_model_len=BLOCK * BLOCKS_EACH,
            max_num_seqs=SEQS,
            max_num_batched_tokens=TOKENS,
            block_size=BLOCK,
        ),
        CompilationConfig(
            mode=CompileMode.VCC_COMPILE,
            cuda_graph_mode=GraphMode.FULL_AND_PIECEWISE,
            capture_sizes=(1, 2, 4),
            splitting_ops=("vcc::kv_write",),
        ),
        tuple(changes.pop("lengths", (12, 16))),  # type: ignore[arg-type]
    )
    settings = replace(settings, **changes)  # type: ignore[arg-type]
    source = SimpleNamespace(tensors=tensors)
    events = NotedEvents(NullEvents())
    made = Loaded.of(manifest, blobs)
    site = weights.parent / "store"
    return Boot(made, source, settings, "off", Ledger(), Counters(), events, site)  # type: ignore[arg-type]


def loaded(asked: Boot) -> PlayerRunner:
    """The runner of a boot."""
    runner = load_player(asked)
    assert isinstance(runner, PlayerRunner)
    return runner
