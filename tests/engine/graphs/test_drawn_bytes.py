"""Arguments drawn without torch are those that torch draws, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.drawn import draw_arguments
from vcc.engine.graphs.drawn_bytes import DRAWABLE, bf16, draw_bytes, widened
from vcc.engine.graphs.golden import BLOCK, Argument


@pytest.mark.parametrize("dtype", sorted(DRAWABLE))
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, BLOCK + 11), (0, 4)])
def test_both_ways_of_drawing_give_the_same_bytes(dtype: str, shape: tuple[int, ...]) -> None:
    one = Argument(dtype, shape, True)  # type: ignore[arg-type]
    ((torchs),) = draw_arguments("piece", [one], 3)
    own = draw_bytes("piece", 0, one, 3)
    assert own.tobytes() == bytes(torchs.reshape(-1).view(torch.uint8).numpy())
    wide = widened(own, dtype)
    np.testing.assert_array_equal(wide, torchs.float().reshape(-1).numpy())


def test_bf16_rounds_to_even() -> None:
    halves = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0xBF818000, 0x3F80FFFF], np.uint32)
    values = torch.from_numpy(halves.view(np.float32).copy())
    wanted = values.to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(bf16(halves.view(np.float32)), wanted)


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(IntegrityError, match="golden refused"):
        draw_bytes("piece", 0, Argument("float8_e5m2", (4,), True), 2)
