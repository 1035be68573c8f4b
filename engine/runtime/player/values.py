"""Elements between arrays of a program and a player's memory, converted natively on their way."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vcc.engine.graphs.table.layout import DTYPE_NAMES, DTYPES
from vcc.engine.native import functions

_C = functions(
    {
        "vcc_player_read_values": "ptr u64 u32 buffer u32 u64",
        "vcc_move_values": "buffer u32 u64 u32 u64",
    }
)

Bytes = npt.NDArray[np.uint8]


def move_values(data: Bytes, dtype: str, address: int, wanted: str) -> None:
    """Write dense elements to memory of the host, as they are or as floats of another dtype.

    Args:
        data: their bytes.
        dtype, wanted: torch's names.
        address: has room for as many elements.
    """
    count = data.nbytes // DTYPES[dtype]
    _C.vcc_move_values(data, _code(dtype), address, _code(wanted), count)


class ValueCalls:
    """The part of a player that reads elements."""

    _handle: int

    def read_values(self, address: int, dtype: str, count: int, wanted: str) -> Bytes:
        """Copy elements of the device to the host, as they are or as floats of another dtype."""
        data = np.empty(count * DTYPES[wanted], np.uint8)
        _C.vcc_player_read_values(self._handle, address, _code(dtype), data, _code(wanted), count)
        return data


def _code(dtype: str) -> int:
    return DTYPE_NAMES.index(dtype)
