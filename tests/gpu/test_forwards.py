"""Plain forwards on a device: node tables built for sm_90, played without torch.

An encoder, a vision transformer and a residual network of `transformers`, each in a directory with
every parameter redrawn, in fp32 and bf16, at several sizes of one artifact; and a factory's module.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import convolution_cases, product_cases
from support.checkpoints import write_redrawn
from support.gpu_jobs import python, vcc
from support.numbers import (
    assert_fp32_close,
    assert_low_precision,
    assert_states_close,
    assert_states_low_precision,
)
from torch import Tensor

import vcc as library

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

pytestmark = pytest.mark.gpu

HERE = Path(__file__).parent
TARGET = "sm_90"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
SIZES = {"hidden_size": 192, "num_hidden_layers": 3, "num_attention_heads": 6}


def texts() -> list[dict[str, Tensor]]:
    """Batches of token ids, the last row of each shorter than the others."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for rows, length in ((1, 1), (2, 17), (8, 128), (3, 65)):
        ids = torch.randint(4, 500, (rows, length), generator=generator)
        mask = torch.ones_like(ids)
        mask[-1, max(1, length // 2) :] = 0
        found.append({"input_ids": ids, "attention_mask": mask, "token_type_ids": ids % 2})
    return found


def images(*counts: int) -> list[dict[str, Tensor]]:
    """Batches of images of 64 pixels."""
    generator = torch.Generator().manual_seed(0)
    return [{"pixel_values": torch.randn(n, 3, 64, 64, generator=generator)} for n in counts]


def bert() -> Any:
    config = transformers.BertConfig(
        **SIZES, intermediate_size=384, vocab_size=500, max_position_embeddings=128
    )
    return transformers.BertModel(config)


def vit() -> Any:
    config = transformers.ViTConfig(
        **SIZES, intermediate_size=384, image_size=64, patch_size=16, num_labels=7
    )
    return transformers.ViTForImageClassification(config)


def resnet() -> Any:
    config = transformers.ResNetConfig(
        embedding_size=32, hidden_sizes=[128, 256], depths=[2, 1], num_labels=7
    )
    model = transformers.ResNetForImageClassification(config)
    generator = torch.Generator().manual_seed(1)
    for name, one in model.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            drawn = torch.rand(one.shape, generator=generator)
            one.copy_(drawn + 0.5 if name.endswith("var") else (drawn - 0.5) * 0.4)
    return model


@dataclass(frozen=True)
class Kind:
    """A model, what it is given, and its declared inputs."""

    make: Callable[[], Any]
    batches: Sequence[Mapping[str, Tensor]]
    shapes: Sequence[str] = ()
    logits: bool = True


KINDS: Mapping[str, Kind] = {
    "bert": Kind(bert, texts(), logits=False),
    "vit": Kind(vit, images(1, 3, *[8] * 12)),  # so many that the largest error is no draw
    "resnet": Kind(resnet, images(1, 4), ("pixel_values=N@1-4x3x64x64",)),
}
CELLS = [(kind, dtype) for kind in KINDS for dtype in DTYPES]


@dataclass(frozen=True)
class Built:
    """A checkpoint with an artifact for each dtype."""

    kind: Kind
    model: Path
    store: Path

    def options(self, dtype: str) -> dict[str, Any]:
        """As `vcc.load_forward` takes them."""
        return {"shapes": list(self.kind.shapes), "dtype": dtype, "target": TARGET}

    def build(self, dtype: str) -> None:
        """Compile; no device is needed for that."""
        shapes = [word for shape in self.kind.shapes for word in ("--shape", shape)]
        done = vcc(
            *("compile", self.model, "--dtype", dtype, "--target", TARGET, *shapes),
            store=self.store,
        )
        assert done.code == 0, done.text[-4000:]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Built]:
    """Every kind, built in both dtypes side by side."""
    found = {}
    for name, kind in KINDS.items():
        home = tmp_path_factory.mktemp(name)
        model = write_redrawn(home / "model", kind.make(), "bfloat16")
        found[name] = Built(kind, model, home / "store")
    with ThreadPoolExecutor(len(CELLS)) as pool:
        for one in [pool.submit(found[kind].build, dtype) for kind, dtype in CELLS]:
            one.result()
    return found


def given(batch: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """A batch whose floats are of a dtype."""
    return {n: one.to(dtype) if one.is_floating_point() else one for n, one in batch.items()}


@torch.no_grad()
def expected(built: Built, dtype: torch.dtype, rounded: torch.dtype) -> list[list[Tensor]]:
    """The outputs of `transformers` on the device, on inputs that were rounded to a dtype."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    kind = type(built.kind.make())
    eager = {} if built.kind is KINDS["resnet"] else {"attn_implementation": "eager"}
    model = kind.from_pretrained(built.model, dtype=dtype, **eager).eval().cuda()
    found = []
    for batch in built.kind.batches:
        inputs = given(given(batch, rounded), dtype)
        results = model(**{name: one.cuda() for name, one in inputs.items()})
        found.append([one.float().cpu() for one in results.values() if isinstance(one, Tensor)])
    return found


def played(built: Built, dtype: str, folder: Path) -> tuple[list[list[Tensor]], Any]:
    """The outputs of a process without torch, and what it said."""
    files = []
    for index, batch in enumerate(built.kind.batches):
        files.append(str(folder / f"in{index}.npz"))
        arrays = given(given(batch, DTYPES[dtype]), torch.float32)
        np.savez(files[-1], **{name: one.numpy() for name, one in arrays.items()})
    job = {"model": str(built.model), "store": str(built.store), "batches": files}
    (folder / "job.json").write_text(json.dumps(job | {"options": built.options(dtype)}))
    done = python(HERE / "forward_process.py", folder / "job.json", folder / "out.npz")
    assert done.code == 0, done.text[-4000:]
    with np.load(folder / "out.npz") as arrays:
        outputs = dict(arrays)
    return [
        [
            torch.from_numpy(outputs[name])
            for name in sorted(outputs)
            if name.startswith(f"{index}/")
        ]
        for index in range(len(files))
    ], done.json


@pytest.mark.parametrize(("kind", "dtype"), CELLS)
def test_a_forward_is_that_of_transformers(
    kind: str, dtype: str, models: Mapping[str, Built], tmp_path: Path
) -> None:
    built = models[kind]
    found, said = played(built, dtype, tmp_path)
    assert said["heavy"] == []
    assert said["counters"]["compiles"] == 0
    exact = expected(built, torch.float32, DTYPES[dtype])
    if dtype == "fp32":
        for mine, wanted in zip(found, exact, strict=True):
            for one, other in zip(mine, wanted, strict=True):
                assert one.shape == other.shape
                (assert_fp32_close if built.kind.logits else assert_states_close)(one, other)
        return
    low_precision = assert_low_precision if built.kind.logits else assert_states_low_precision
    peers = expected(built, torch.bfloat16, torch.bfloat16)
    for output in range(len(exact[0])):
        sides = [
            torch.cat([one[output].reshape(-1, one[output].shape[-1]) for one in side])
            for side in (found, exact, peers)
        ]
        low_precision(*sides)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_kernels_of_forwards_are_held_on_a_device(dtype: torch.dtype) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    product_cases.check(dtype, "cuda")
    convolution_cases.check(dtype, "cuda")


FACTORY = '''"""Attention by torch's own function, a grouped convolution, and a buffer."""

import torch
from torch.nn import functional as F


class Mixer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(96, 96, 3, padding=1, groups=4)
        self.qkv = torch.nn.Linear(96, 288)
        self.out = torch.nn.Linear(96, 10)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 96))

    def forward(self, step):
        x = self.conv(step.transpose(1, 2)).transpose(1, 2) * self.scale
        shape = (*x.shape[:2], 4, 24)
        q, k, v = (one.reshape(shape).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(x.shape)), x.mean(1)


def make():
    torch.manual_seed(0)
    return Mixer().eval()
'''


# The input has a name that a decoder has for one of its sampling.
@pytest.mark.parametrize(
    ("shape", "ends"),
    [("step=B@1-4xS@2-200x96", []), ("step=3x70x96", []), ("step=3xS@2-200x96", [64])],
)
def test_a_factory_runs_at_its_declared_sizes(
    shape: str, ends: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mixer_zoo.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    config = {"compile_ranges_endpoints": ends} if ends else {}
    more = ("--compilation-config", json.dumps(config))
    store, words = (
        tmp_path / "store",
        ("mixer_zoo:make", "--shape", shape, "--target", TARGET, *more),
    )
    done = vcc("compile", *words, store=store)
    assert done.code == 0, done.text[-4000:]
    ran = vcc("run", *words, "--require-warm", "--json", store=store)
    assert ran.code == 0, ran.text[-4000:]
    forward = library.load_forward(
        "mixer_zoo:make",
        shapes=[shape],
        target=TARGET,
        compilation=config,
        cache_dir=store,
        require_warm=True,
        golden="all",
    )
    from mixer_zoo import make

    module = make()
    sizes = {"step=3x70x96": ((3, 70),), "step=3xS@2-200x96": ((3, 2), (3, 64), (3, 200))}
    for rows, length in sizes.get(shape, ((1, 2), (3, 70), (4, 200))):
        x = torch.randn(rows, length, 96, generator=torch.Generator().manual_seed(length))
        with torch.no_grad():
            wanted = module(x)
        found = forward({"step": x})
        for index, one in enumerate(wanted):
            assert_states_close(found[f"output_{index}"], one)
