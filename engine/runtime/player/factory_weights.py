"""Weights that a factory makes, on the host with torch, copied to where a player has them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from vcc.cache.errors import IntegrityError, ModelError
from vcc.engine.graphs.blob_names import CONSTANT
from vcc.engine.models.expressions import ChannelsLast
from vcc.engine.models.turned import parameter_of, turned_of
from vcc.engine.models.weights import channels_last
from vcc.engine.runtime.module_loader import other_content, own_module
from vcc.engine.runtime.player.handle import PlayerHandle
from vcc.engine.runtime.player.layout import Layout, Tensor
from vcc.engine.runtime.player.values import Bytes
from vcc.engine.runtime.settings import Boot
from vcc.engine.tensor_bytes import tensor_bytes


def fill(boot: Boot, handle: PlayerHandle, layout: Layout, blobs: Mapping[str, bytes]) -> None:
    """Copy the parameters and buffers of the module, and the artifact's constants.

    Raises:
        ModelError: the factory fails, or its weights are not those of the artifact.
        IntegrityError: a constant is not as large as the table says.
        WeightsContent: a buffer that is a constant of the artifact has another content now.
    """
    module = own_module(boot)
    buffers, state = dict(module.named_buffers()), module.state_dict()
    turned = turned_of(boot.loaded.manifest)
    for one in layout.tensors.values():
        if one.role == "constant":
            handle.write(one.address, _constant(boot, one, blobs, buffers))
        elif one.role == "weight":
            handle.write(one.address, _weight(one, state, turned.get(one.target)))


def _constant(
    boot: Boot, one: Tensor, blobs: Mapping[str, bytes], buffers: Mapping[str, torch.Tensor]
) -> Bytes:
    data = np.frombuffer(blobs.get(CONSTANT + one.target, b""), np.uint8)
    if len(data) != one.bytes:
        raise IntegrityError(
            f"constant {one.target[:60]} is {len(data)} bytes", f"the table takes {one.bytes} bytes"
        )
    own = buffers.get(one.target)
    if own is not None and tensor_bytes(own).tobytes() != data.tobytes():
        raise other_content(boot, one.target)
    return data


def _weight(one: Tensor, state: Mapping[str, torch.Tensor], turned: ChannelsLast | None) -> Bytes:
    name = one.target if turned is None else parameter_of(turned)
    if name not in state:
        raise ModelError(f"the module has no parameter {name}", "its code has changed")
    found = state[name] if turned is None else channels_last(state[name], str(turned))
    dtype: torch.dtype = getattr(torch, one.dtype)
    if found.dtype != dtype or tuple(found.shape) != one.shape:
        raise ModelError(
            "the weights are not those of the module",
            f"{one.target} is {found.dtype} {list(found.shape)}, "
            f"the artifact takes {dtype} {list(one.shape)}",
            "give its own state_dict(), saved with safetensors",
        )
    return tensor_bytes(found.contiguous())
