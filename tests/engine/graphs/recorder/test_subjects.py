"""What is recorded of a request, run once on the CPU in place of the device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support.gpu_jobs import vcc

from vcc.cache.errors import ConfigError
from vcc.engine.config.modes import CompileMode, Dtype, GraphMode
from vcc.engine.config.target import Target
from vcc.engine.config.types import CompilationConfig, ModelConfig, ParallelConfig
from vcc.engine.graphs.recorder import samples, subjects
from vcc.engine.graphs.table.types import Role
from vcc.engine.models.source import open_source
from vcc.engine.ops.choice import OpChoice
from vcc.engine.request import BuildRequest, Settled, settle
from vcc.engine.torch_shim.profiles import PROFILES

PROFILE = PROFILES["sm_90"]


def settled(name: str, *shapes: str) -> Settled:
    return settle(
        BuildRequest(
            open_source(name, weights="none" if name == "demo" else None, shapes=shapes),
            ModelConfig(source=name, dtype=Dtype.FP32, max_num_seqs=4, max_model_len=64),
            CompilationConfig(
                mode=CompileMode.NO_COMPILATION,
                cuda_graph_mode=GraphMode.FULL,
                capture_sizes=(1, 4, 16),
            ),
            ParallelConfig(),
            Target.parse("sm_90"),
        )
    )


@pytest.fixture
def mlp(tmp_path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "recorded_mlp.py").write_text(
        "import torch\n"
        "class Mlp(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)\n"
        "        self.register_buffer('shift', torch.arange(16.0))\n"
        "        self.register_buffer('order', torch.arange(15, -1, -1))\n"
        "        self.register_buffer('scratch', torch.zeros(3), persistent=False)\n"
        "    def forward(self, x):\n"
        "        return self.down(torch.relu(self.up(x)))[:, self.order] + self.shift\n"
    )
    monkeypatch.chdir(tmp_path)
    return "recorded_mlp:Mlp"


def test_a_decoder_runs_on_tensors_in_its_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subjects, "op_choice", lambda s: OpChoice(s.resolved.ops.enabled))
    subject = subjects.subject_of(settled("demo"), PROFILE)
    recording = subject.recording
    tensors = {}
    for region, slot in recording.slots():
        data = torch.zeros(slot.shape, dtype=getattr(torch, slot.dtype))
        if slot.role is Role.WEIGHT:
            values = samples.block(slot.dtype, region).view(np.float32)
            data = torch.from_numpy(np.resize(values, slot.shape).copy())
        tensors[slot.name] = data
    for name, data in subject.constants.items():
        tensors[name].copy_(torch.from_numpy(np.asarray(data)))
    run = subject.make(tensors)
    for descriptor in recording.descriptors:
        batch = {n: torch.from_numpy(a) for n, a in samples.batch(recording, descriptor).items()}
        with torch.no_grad():
            logits = run(descriptor, batch)
        assert logits.shape == (descriptor.seqs, recording.of_role(Role.OUTPUT)[0].shape[1])
        assert torch.isfinite(logits).all()


def test_a_modules_weights_are_weights_and_what_it_does_not_save_is_constant(mlp: str) -> None:
    subject = subjects.subject_of(settled(mlp, "x=4x16"), PROFILE)
    roles = {slot.name: slot.role for slot in subject.recording.weights}
    assert roles == {
        **dict.fromkeys(("up.weight", "up.bias", "down.weight", "down.bias"), Role.WEIGHT),
        "shift": Role.WEIGHT,
        "order": Role.CONSTANT,
        "scratch": Role.CONSTANT,
    }
    assert set(subject.constants) == {"order", "scratch"}
    assert [slot.shape for slot in subject.recording.io] == [(4, 16), (4, 16)]


def test_a_module_runs_on_tensors_in_its_regions(mlp: str) -> None:
    subject = subjects.subject_of(settled(mlp, "x=4x16"), PROFILE)
    tensors = {
        slot.name: torch.randn(slot.shape)
        for slot in subject.recording.weights
        if slot.role is Role.WEIGHT
    }
    tensors |= {n: torch.from_numpy(np.asarray(one)) for n, one in subject.constants.items()}
    run = subject.make(tensors)
    (descriptor,) = subject.recording.descriptors
    x = torch.ones(4, 16)
    hidden = torch.relu(torch.nn.functional.linear(x, tensors["up.weight"], tensors["up.bias"]))
    wanted = torch.nn.functional.linear(hidden, tensors["down.weight"], tensors["down.bias"])
    assert torch.equal(run(descriptor, {"x": x}), wanted[:, tensors["order"]] + tensors["shift"])


def test_a_module_with_open_sizes_is_refused(mlp: str) -> None:
    with pytest.raises(ConfigError, match="inputs of one size"):
        subjects.subject_of(settled(mlp, "x=1-4x16"), PROFILE)


def test_without_a_gpu_recording_says_so_and_what_to_do(tmp_path: Path) -> None:
    """In a process of its own: one process has one driver, and this one may have the double."""
    words = ("compile", "demo", "--compile", "none", "--target", "sm_90", "--dtype", "bf16")
    done = vcc(*words, "--json", store=tmp_path, VCC_LIBCUDA="/nowhere/libcuda.so.1")
    assert done.code == 3, done.text
    error = done.json["error"]
    assert "only be recorded on a GPU" in error["what"]
    assert "--compile vcc" in error["hint"]
