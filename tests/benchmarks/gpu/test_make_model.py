"""Checkpoints for the GPU benchmarks are what any reader of checkpoints takes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from vcc.engine.models.architectures import spec_of
from vcc.engine.models.bindings import bindings_of, expected_tensors
from vcc.engine.models.source import open_source
from vcc.engine.runtime.tokenizer import open_tokenizer

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from make_model import PROMPT_TOKENS, config_of, write_model  # noqa: E402

sys.path.remove(str(HERE))


@pytest.mark.parametrize(("size", "parameters"), [("1b", 1_235_814_400), ("8b", 8_030_261_248)])
def test_the_shapes_are_those_of_llama(size: str, parameters: int) -> None:
    shapes = expected_tensors(spec_of(config_of(size))).values()
    assert sum(int(np.prod(shape)) for shape in shapes) == parameters


def test_a_checkpoint_is_whole_and_random(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("make_model.SHARD_BYTES", 3_000_000)
    told = write_model("tiny", tmp_path)
    source = open_source(str(tmp_path))
    bindings_of(source.spec, source.tensors)
    assert len({info.file for info in source.tensors.values()}) == told["files"] == 2
    info = source.tensors["model.layers.0.mlp.up_proj.weight"]
    raw = np.fromfile(info.file, np.uint8)[info.start : info.end]
    bits = raw.view(np.uint16).astype(np.uint32) << 16
    values = bits.view(np.float32)
    assert 0.019 < values.std() < 0.021
    assert abs(values.mean()) < 1e-3
    prompt = (tmp_path / "prompt.txt").read_text()
    assert "\n" not in prompt
    assert len(open_tokenizer(tmp_path / "tokenizer.json").encode(prompt)) == PROMPT_TOKENS
