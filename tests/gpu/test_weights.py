"""Weights on a real device: every form of binding, bytes read back; no torch on the device side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support.weight_cases import BINDINGS, at, checkpoint, homes, size_of

from vcc.engine.arena import Arena
from vcc.engine.models.weights import load_weights
from vcc.engine.native import functions
from vcc.engine.runtime.player.weight_plan import plan_weights
from vcc.engine.runtime.player.weights import load

pytestmark = pytest.mark.gpu

C = functions({"vcc_device_read": "ptr u64 buffer u64"})


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("wanted", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("slot", [256, 1 << 21])
def test_every_form_of_binding_arrives(
    tmp_path: Path, stored: torch.dtype, wanted: torch.dtype, slot: int
) -> None:
    tensors = checkpoint(tmp_path, stored)
    values, _ = load_weights(BINDINGS, tensors, wanted)
    places = homes(values)
    plan, size = plan_weights(places, BINDINGS, tensors, {}), size_of(places)
    with Arena() as arena:
        base = arena.allocate(size, "weights")
        load(plan, arena.device_handle, base, size, readers=8, slot_bytes=slot)
        region = np.empty(size, np.uint8)
        C.vcc_device_read(arena.device_handle, base, region, size)
    for home in places:
        assert torch.equal(at(region.tobytes(), home), values[home.name]), home.name
