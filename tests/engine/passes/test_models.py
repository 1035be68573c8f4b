"""Supported models on which each pass fires, with equal results and what it saves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from support.decoders import SHAPE, spec
from support.transformers_traces import of_transformers
from torch.fx import Interpreter

from vcc.engine.config.types import DEFAULT_SPLITTING_OPS, CompilationConfig
from vcc.engine.ops.choice import OpChoice
from vcc.engine.ops.register import load_ops
from vcc.engine.passes.apply import PASSES, apply
from vcc.engine.passes.base import PassContext
from vcc.engine.passes.prove import ALLOWED, Proof, draw, prove
from vcc.engine.torch_shim.fake_calls import symbols_of
from vcc.engine.trace.decoder import decoder_trace
from vcc.engine.trace.trace import trace
from vcc.engine.types import Traced

CONTEXT = PassContext(CompilationConfig(splitting_ops=DEFAULT_SPLITTING_OPS))


def of_decoder(arch: str) -> Traced:
    load_ops()
    return trace(decoder_trace(spec(arch, 3), torch.float32, OpChoice(), SHAPE))


MODELS: dict[str, Callable[[], Traced]] = {
    "built-in llama": lambda: of_decoder("llama"),
    "transformers' llama": lambda: of_transformers("Llama", num_key_value_heads=2),
    "transformers' falcon": lambda: of_transformers("Falcon", bos_token_id=1, eos_token_id=1),
}

FIRES: dict[str, dict[str, tuple[str, ...]]] = {
    "built-in llama": {
        "fires": ("eliminate_noops", "coalesce_splits", "donate_buffers"),
        "saves": ("donate_buffers",),
    },
    "transformers' llama": {
        "fires": ("eliminate_noops", "coalesce_splits", "eliminate_dead_code"),
        "saves": ("eliminate_noops",),
    },
    "transformers' falcon": {
        "fires": ("eliminate_noops", "coalesce_splits", "eliminate_clones"),
        "saves": ("eliminate_noops", "eliminate_clones"),
    },
}


def proofs(graph: Traced, names: Sequence[str]) -> dict[str, Proof]:
    """Each named pass after those before it."""
    found = {}
    for one in PASSES:
        if one.name in names:
            found[one.name] = prove(graph, one, CONTEXT)
        else:
            apply(graph, [one], CONTEXT)
    return found


@pytest.mark.parametrize("name", FIRES)
def test_passes_fire_on_supported_models_with_equal_results(name: str) -> None:
    wanted = FIRES[name]
    found = proofs(MODELS[name](), wanted["fires"])
    for pass_name, proof in found.items():
        assert proof.report.matches > 0, pass_name
        assert proof.exact, pass_name
        assert proof.settled, pass_name
    for pass_name in wanted["saves"]:
        saved = found[pass_name].report.saved
        assert saved.bytes > 0, pass_name


def test_every_pass_here_fires_somewhere() -> None:
    """What fires on no model is removed; operators with two forms are in test_in_place.py."""
    fired = {name for one in FIRES.values() for name in one["fires"]}
    ours = ("eliminate_noops", "coalesce_splits", "eliminate_clones", "eliminate_dead_code")
    assert fired == {*ours, "donate_buffers"}


def fresh(graph: Traced) -> Traced:
    return Traced(copy.deepcopy(graph.graph), graph.placeholders, graph.ranges, graph.constants)


def test_each_pass_alone_and_all_together_give_equal_results() -> None:
    """On a decoder with every size of a step that is drawn; caches are compared too."""
    traced = of_decoder("qwen3")
    for one in PASSES:
        alone = prove(fresh(traced), one, CONTEXT)
        assert alone.equal, one.name
    together = fresh(traced)
    apply(together, PASSES, CONTEXT)
    sizes = dict.fromkeys(_symbols(traced), 8)
    given = draw(traced, sizes)
    got, want = (
        Interpreter(graph.graph).run(*(one.clone() for one in given))[0]
        for graph in (together, traced)
    )
    assert float((got - want).abs().max()) <= ALLOWED * float(want.abs().max())


def _symbols(traced: Traced) -> list[Any]:
    values = [n.meta["val"] for n in traced.graph.graph.nodes if n.op == "placeholder"]
    return list(symbols_of(values))
