"""Attention of whole rows on a device: the Triton kernel against plain torch, in every type.

Nearly all of the time is Triton's compiler, so cases run in as many processes as there are cores.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import torch
from support import attention_cases as cases

pytestmark = pytest.mark.gpu

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
PATIENCE = 300
"""Seconds for all cases."""


def _checked(index: int, dtype: torch.dtype) -> None:
    torch.manual_seed(index)
    every = (*cases.SMALL, *cases.LARGE)
    if index == len(every):
        cases.check_fewer_dimensions(dtype, "cuda")
    else:
        cases.check(every[index], dtype, "cuda")


def test_attention_is_that_of_plain_torch() -> None:
    cores = min(len(os.sched_getaffinity(0)), 16)
    every = range(len(cases.SMALL) + len(cases.LARGE) + 1)
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        made = [pool.submit(_checked, index, dtype) for index in every for dtype in DTYPES]
        for one in made:
            one.result(timeout=PATIENCE)
