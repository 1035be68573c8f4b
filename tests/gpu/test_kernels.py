"""Each Triton kernel on a device, in every element type, against plain torch in fp32.

Nearly all of the time is Triton's compiler on one core a process, so the parts of all cases run in
as many processes as there are cores; each test waits for its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from support.kernel_cases import CASES
from support.kernel_parts import PARTS, on_device

pytestmark = pytest.mark.gpu

DTYPES = ("float32", "float16", "bfloat16")
SLOWEST = ("attention", "attention_long", "linear", "sample")
"""Begun first, so that none of them is left over at the end."""

PATIENCE = 500
"""Seconds for one part."""

Parts = Mapping[tuple[str, str], list[Future[None]]]


@pytest.fixture(scope="module")
def parts() -> Iterator[Parts]:
    """What every part comes to, by case and element type."""
    context = get_context("forkserver")  # workers begin with torch imported and no device opened
    context.set_forkserver_preload(["support.kernel_parts"])
    cores = len(os.sched_getaffinity(0))
    names = sorted(CASES, key=lambda name: (name not in SLOWEST, name))
    with ProcessPoolExecutor(min(cores, 32), mp_context=context) as pool:
        yield {
            (name, dtype): [
                pool.submit(on_device, name, dtype, part) for part in range(PARTS.get(name, 1))
            ]
            for dtype in DTYPES
            for name in names
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(CASES))
def test_kernel(parts: Parts, name: str, dtype: str) -> None:
    for part in parts[name, dtype]:
        part.result(timeout=PATIENCE)
