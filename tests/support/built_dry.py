"""The cases of built_cases.py on the driver's double, which executes nothing; prints JSON.

    VCC_LIBCUDA=… python -m support.built_dry sm_90

Cubins have no code here; that each kernel compiles is another test's.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from typing import Any

import torch
from torch import Tensor

from support.built_cases import FAMILIES, run
from support.built_kernels import NUMBERS, Built
from support.cuda_cases import Case
from support.fake_cuda import Fake
from support.fake_cuda.cubins import cubin
from vcc.engine.graphs.recorder.calls import open_driver
from vcc.engine.ops.triton import wrapped
from vcc.engine.ops.triton.registry import KernelSpec
from vcc.engine.torch_shim.profiles import PROFILES
from vcc.engine.torch_shim.triton_build import NULL_POINTERS, CompiledKernel


def codeless(spec: KernelSpec, profile: object) -> CompiledKernel:
    """As `KernelSpec.compile`, without code.

    Raises:
        AssertionError: the kernel is not given exactly its parameters.
    """
    given = {name for name, _ in spec.parameters} | spec.constants.keys()
    assert given == set(spec.function.arg_names), spec.function
    sizes = [4 if NUMBERS.get(kind, "<q") in ("<i", "<f") else 8 for _, kind in spec.parameters]
    name = spec.function.fn.__name__
    data = cubin({name: (*sizes, *[8] * NULL_POINTERS)})
    digest, source = hashlib.sha256(data).hexdigest(), None
    facts: Any = (data, digest, name, spec.num_warps, 0, spec.parameters, source)
    return CompiledKernel(*facts)


def tried(built: Built, family: str) -> dict[str, int]:
    """Calls of each operator that a family makes."""
    found: dict[str, int] = {}

    def count(case: Case, got: tuple[Tensor, ...]) -> None:
        found[case.op] = found.get(case.op, 0) + 1

    assert run(family, built, torch.bfloat16, "cpu", count) == sum(found.values())
    return found


def bound(built: Built) -> dict[str, Any]:
    """A launch as the driver has it, beside the tensors that were given."""
    driver = Fake()
    driver.clear()
    x, residual = torch.randn(3, 40), torch.randn(3, 40)
    wrapped.fused_add_rms_norm(x, residual, torch.ones(40), 1e-5, through=built.through)
    (launch,) = driver.launches()
    pointers = b"".join(one.data_ptr().to_bytes(8, "little") for one in (x, residual))
    return {"name": launch.name, "grid": launch.grid, "same": launch.words[:16] == pointers}


def main(target: str) -> None:
    """Run every family for a target."""
    random.seed(seed := random.randrange(1 << 31))
    KernelSpec.compile = codeless  # type: ignore[method-assign]
    open_driver(0)
    built = Built(PROFILES[target])
    found = {family: tried(built, family) for family in FAMILIES}
    told = {"tried": found, "launches": built.launches, "bound": bound(built), "seed": seed}
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
