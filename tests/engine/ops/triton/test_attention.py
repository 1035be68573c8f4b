"""Attention of whole rows in Triton: by its interpreter, and compiled for absent devices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from support.interpreted import run_interpreted

from vcc.engine.ops.triton import wrapped_attention
from vcc.engine.ops.triton.specs import KernelSpec
from vcc.engine.ops.triton.wrapped_attention import LEAST, PLAIN, TILES, attended, block_bytes
from vcc.engine.torch_shim.profiles import PROFILES

POINTERS = {torch.bool: "*i1", torch.float32: "*fp32", torch.bfloat16: "*bf16"}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_attention_by_the_interpreter(dtype: str) -> None:
    run_interpreted("attention_cases", dtype)


class Written:
    """Takes a launch in place of Triton, and says what a build would compile of it."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: Any) -> Any:
        return self._call

    def _call(self, *values: Any, **named: Any) -> None:
        options = {name: named.pop(name) for name in ("num_warps", "num_stages")}
        free = dict(zip(self._kernel.arg_names, values, strict=False))
        kinds = {n: POINTERS[v.dtype] if hasattr(v, "dtype") else "i32" for n, v in free.items()}
        pointers = frozenset(name for name, kind in kinds.items() if kind[0] == "*")
        raise Made(KernelSpec(self._kernel, tuple(kinds.items()), named, pointers, **options))


class Made(Exception):
    """Carries what was launched."""

    def __init__(self, spec: KernelSpec) -> None:
        super().__init__()
        self.spec = spec


def spec(dtype: torch.dtype, dim: int, mask: torch.dtype | None, causal: bool) -> KernelSpec:
    q = torch.empty(32, 12, 130, dim, dtype=dtype, device="meta")
    seen = None if mask is None else torch.empty(130, 130, dtype=mask, device="meta")
    with pytest.raises(Made) as made:
        attended(q, q, q, seen, causal, 0.125, through=Written)
    return made.value.spec


@pytest.mark.parametrize(
    ("target", "case"),
    [
        ("sm_90", (torch.bfloat16, 64, None, False)),
        ("sm_80", (torch.bfloat16, 80, torch.bool, True)),
        pytest.param("sm_80", (torch.float32, 128, torch.float32, False), marks=pytest.mark.slow),
        pytest.param("sm_86", (torch.bfloat16, 128, torch.float32, False), marks=pytest.mark.slow),
        pytest.param("sm_90", (torch.bfloat16, 32, torch.bool, False), marks=pytest.mark.slow),
        pytest.param("sm_120", (torch.bfloat16, 96, torch.float32, True), marks=pytest.mark.slow),
    ],
)
def test_it_compiles_within_a_block(
    target: str, case: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = PROFILES[target]
    room = profile.shared_per_block_optin
    monkeypatch.setattr(wrapped_attention, "shared_memory", lambda _: room)
    made = spec(*case).compile(profile)
    assert made.shared <= room


def test_every_tile_fits_some_way_on_every_device() -> None:
    """What is estimated is what `choice` compares; the last resort fits whatever a mask is."""
    rooms = {one.shared_per_block_optin for one in PROFILES.values()}
    assert block_bytes(LEAST, 2, (128, 128), 4) <= min(rooms)
    assert block_bytes(PLAIN, 4, (128, 128), 4) <= min(rooms)
    for (item, lanes, _), tiles in TILES.items():
        for tile in (tiles.many, tiles.moving, tiles.few):
            assert block_bytes(replace(tile, stages=2), item, (lanes, lanes), 0) <= min(rooms) or (
                block_bytes(tile, item, (lanes, lanes), 0) <= max(rooms)
            )


def test_the_kernel_compiles_with_its_integers_as_constants() -> None:
    """As torch 2.11 does to see what it writes; failing that, its inputs count as written."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget

    made = spec(torch.bfloat16, 64, torch.bool, True)
    numbers = {name: 8 for name, kind in made.parameters if kind == "i32"}
    kinds = dict(made.parameters) | dict.fromkeys((*made.constants, *numbers), "constexpr")
    names = made.function.arg_names
    constants = {(names.index(n),): v for n, v in {**made.constants, **numbers}.items()}
    signature = {name: kinds[name] for name in names}
    source = triton.compiler.ASTSource(made.function, signature, constants, {})
    done = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    assert done.asm["ttir"].count("tt.store") == 1
