"""Every Triton kernel of an operator as a build makes it, on a device: drawn sizes, by the rule.

Cubins compiled for the device's profile, launched as graph nodes by the driver: what `vcc compile`
puts into a table and the player launches, and nothing of Triton's run time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from support.built_cases import DTYPES, FAMILIES, on_device

pytestmark = pytest.mark.gpu

PATIENCE = 400
"""Seconds for one family."""


@pytest.fixture(scope="module")
def parts() -> Iterator[Mapping[tuple[str, str], Future[int]]]:
    """How many calls each family came to; all compile side by side."""
    context = get_context("forkserver")  # workers begin with torch imported and no device opened
    context.set_forkserver_preload(["support.built_cases"])
    with ProcessPoolExecutor(min(len(os.sched_getaffinity(0)), 21), mp_context=context) as pool:
        yield {
            (family, dtype): pool.submit(on_device, family, dtype)
            for dtype in DTYPES
            for family in FAMILIES
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_as_built_keep_the_rule(
    parts: Mapping[tuple[str, str], Future[int]], family: str, dtype: str
) -> None:
    assert parts[family, dtype].result(timeout=PATIENCE) > 0
