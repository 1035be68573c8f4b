"""Elements that come back from a device: as they are, or widened, in one piece and in several."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support.step_tables import HIDDEN
from support.toy_forward import fixed_forward, played

from vcc.cache.errors import VccError

pytestmark = pytest.mark.usefixtures("double")

LONG = (16 << 20) // (2 * HIDDEN) + 3
"""Rows that are more than is read at once."""


@pytest.mark.parametrize("rows", [40, LONG])
def test_what_a_device_holds_is_read_as_it_is_and_widened(weights: Path, rows: int) -> None:
    forward, _ = played(weights, fixed_forward(rows))
    handle, layout = forward._tables[0].step.handle, forward._tables[0].step.layout
    values = torch.randn(rows, HIDDEN, generator=torch.Generator().manual_seed(0)).bfloat16()
    address = layout.tensor("y").address
    handle.write(address, values.view(torch.int16).numpy())
    same = handle.read_values(address, "bfloat16", values.numel(), "bfloat16")
    assert torch.equal(torch.from_numpy(same).view(torch.bfloat16), values.reshape(-1))
    wide = handle.read_values(address, "bfloat16", values.numel(), "float32")
    np.testing.assert_array_equal(wide.view(np.float32), values.float().numpy().reshape(-1))
    assert handle.read_values(address, "bfloat16", 0, "float32").size == 0
    with pytest.raises(VccError, match="a dtype that is made of the other"):
        handle.read_values(address, "bfloat16", 1, "int32")
    forward.close()


def test_outputs_are_of_the_kind_of_the_inputs(weights: Path) -> None:
    forward, _ = played(weights, fixed_forward(40))
    x = torch.zeros(40, HIDDEN)
    found = forward({"x": x.bfloat16()})["output_0"]
    assert (found.dtype, tuple(found.shape)) == (torch.bfloat16, (40, HIDDEN))
    array = forward({"x": x.numpy()})["output_0"]
    assert (array.dtype, array.shape) == (np.float32, (40, HIDDEN))
    assert forward.run({"x": x.numpy()})["output_0"].dtype == "bfloat16", "as it lies in memory"
    forward.close()
