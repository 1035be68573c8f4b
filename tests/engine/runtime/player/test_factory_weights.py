"""Weights of a factory are written as the table has them: as they are, or channels last."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch import nn

from vcc.cache.errors import IntegrityError, ModelError
from vcc.engine.runtime.player import factory_weights
from vcc.engine.runtime.player.layout import Tensor

TURNED = {"0.weight.channels_last": 'channels_last(tied("0.weight"))'}


def tensor(target: str, *shape: int) -> Any:
    size = 4 * int(np.prod(shape))
    known = {"name": target, "target": target, "role": "weight", "dtype": "float32"}
    return SimpleNamespace(**known, shape=shape, bytes=size, address=hash(target))


def filled(
    monkeypatch: pytest.MonkeyPatch, module: nn.Module, told: object, *tensors: Tensor
) -> dict[int, bytes]:
    """What is written, by address."""
    monkeypatch.setattr(factory_weights, "own_module", lambda _: module)
    written: dict[int, bytes] = {}
    boot: Any = SimpleNamespace(
        loaded=SimpleNamespace(manifest=SimpleNamespace(info={"turned": told}))
    )
    handle: Any = SimpleNamespace(write=lambda at, data: written.update({at: bytes(data)}))
    layout: Any = SimpleNamespace(tensors={one.name: one for one in tensors})
    factory_weights.fill(boot, handle, layout, {})
    return written


def test_a_filter_is_written_both_ways_where_both_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = nn.Sequential(nn.Conv2d(4, 6, (3, 2)))
    plain, turned = tensor("0.weight", 6, 4, 3, 2), tensor("0.weight.channels_last", 6, 3, 2, 4)
    found = filled(monkeypatch, module, TURNED, plain, turned, tensor("0.bias", 6))
    weight = module[0].weight.detach()
    assert found[plain.address] == weight.numpy().tobytes()
    assert found[turned.address] == weight.permute(0, 2, 3, 1).contiguous().numpy().tobytes()


def test_what_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module, name = nn.Sequential(nn.Conv2d(4, 6, (3, 2))), "0.weight.channels_last"
    with pytest.raises(ModelError, match="not those of the module") as told:
        filled(monkeypatch, module, TURNED, tensor(name, 6, 4, 3, 2))
    assert "float32 [6, 3, 2, 4], the artifact takes torch.float32 [6, 4, 3, 2]" in told.value.why
    with pytest.raises(ModelError, match="has no parameter gone"):
        filled(monkeypatch, module, {name: 'channels_last(tied("gone"))'}, tensor(name, 6, 3, 2, 4))
    with pytest.raises(ModelError, match="has no sizes behind its channels"):
        filled(monkeypatch, module, {name: 'channels_last(tied("0.bias"))'}, tensor(name, 6))
    with pytest.raises(IntegrityError, match="turned weights are refused"):
        filled(monkeypatch, module, {name: 'tensor("0.weight")'}, tensor(name, 6, 3, 2, 4))
