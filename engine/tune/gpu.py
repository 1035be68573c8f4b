"""The models of GPU that products are recorded on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from vcc.cache.key import Key, cleaned


class Gpu(Struct, frozen=True):
    """A model of GPU: what an algorithm choice of cuBLASLt depends on."""

    name: str
    sm: int
    sm_count: int

    @classmethod
    def of_info(cls, info: str | Mapping[str, Any]) -> Gpu:
        """From what the native library says about a device (JSON of `vcc_device_info`)."""
        found = json.loads(info) if isinstance(info, str) else info
        arch = str(found["arch"]).removeprefix("sm_")
        return cls(cleaned(found["name"]), int(arch), int(found["multiprocessors"]))

    @property
    def key(self) -> Key:
        """What its shelf is called after."""
        fields = {"gpu": self.name, "sm": str(self.sm), "sm_count": str(self.sm_count)}
        return Key.of(fields)

    def __str__(self) -> str:
        return self.name
