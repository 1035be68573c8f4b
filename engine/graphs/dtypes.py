"""Element types by the names that step programs use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import torch

from vcc.engine.graphs.program import Element

_NAMES: tuple[Element, ...] = get_args(Element)

DTYPES: Mapping[str, torch.dtype] = {name: getattr(torch, name) for name in _NAMES}

NAMES: Mapping[torch.dtype, Element] = {getattr(torch, name): name for name in _NAMES}
