"""libvcc_ops' CUDA launches on the double of the driver, beside those of the planner's table.

Run as a program: a process keeps the first driver that it opens. The operators are called with
tensors of the CPU under the key of CUDA, so a torch without CUDA will do; the double runs nothing.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from support.cuda_cases import Case, all_cases
from support.fake_cuda import Fake
from support.host_kernels import layout
from vcc.engine.ops.cuda import eager
from vcc.engine.ops.cuda.call import CudaCall
from vcc.engine.ops.cuda.table import cuda_call
from vcc.engine.ops.register import load_ops
from vcc.engine.torch_shim.triton_build import parameter_offsets

FORMATS: Mapping[str, str] = {"i32": "<i", "i64": "<q", "fp32": "<f"}


def called(case: Case) -> Any:
    """An operator's CUDA implementation on tensors of the CPU."""
    overload = getattr(torch.ops.vcc, case.op).default
    names = [argument.name for argument in overload._schema.arguments]
    given = {**case.tensors, **case.numbers}
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
    return overload.redispatch(keys, *(given.get(name) for name in names))


def words(call: CudaCall, block: bytes) -> dict[str, Any]:
    """A parameter block by name, as the table says where each parameter is."""
    offsets = parameter_offsets(tuple((one.name, one.kind) for one in call.parameters))
    kinds = {one.name: FORMATS.get(one.kind, "<Q") for one in call.parameters}
    return {name: struct.unpack_from(kinds[name], block, at)[0] for name, at in offsets.items()}


def differences(case: Case, fake: Fake) -> Iterator[str]:
    """What the library launches otherwise than the table says."""
    fake.clear()
    results = called(case)
    results = () if results is None else results if isinstance(results, tuple) else (results,)
    call = cuda_call(case.op, {n: layout(one) for n, one in case.tensors.items()}, case.numbers)
    (launch,) = fake.launches()
    found = words(call, launch.words)
    made = {one.name: tensor for one, tensor in zip(call.results, results, strict=True)}
    wanted: dict[str, Any] = {}
    for one in call.parameters:
        pointer = one.kind.startswith("*")
        value = {**case.tensors, **made}[str(one.value)].data_ptr() if pointer else one.value
        wanted[one.name] = (
            struct.unpack("<f", struct.pack("<f", value))[0] if one.kind == "fp32" else value
        )
    if (launch.name, launch.grid, launch.block) != (
        call.symbol,
        (call.blocks, 1, 1),
        (call.threads, 1, 1),
    ):
        yield f"{case.op} {case.name}: {launch} is not {call.symbol} {call.blocks} {call.threads}"
    if found != wanted:
        yield f"{case.op} {case.name}: {found} is not {wanted}"
    for one in call.results:
        result = made[one.name]
        told = (tuple(result.shape), result.stride(), str(result.dtype))
        if told != (one.shape, one.stride, f"torch.{one.dtype}"):
            yield f"{case.op} {case.name}: result {one.name} is {told}"


def refusals() -> dict[str, str]:
    """What an operator says to a call that no kernel takes."""
    x, weight = torch.randn(2, 32768), torch.ones(32768)
    calls = {
        "wide": Case(
            "rms_norm", "", {"x": x, "weight": weight}, {"eps": 1e-6, "weight_offset": 0.0}
        ),
        "odd": Case("silu_and_mul", "", {"x": torch.randn(2, 7)}),
        "double": Case("silu_and_mul", "", {"x": torch.randn(2, 8).double()}),
        "experts": Case(
            "topk_softmax", "", {"logits": torch.randn(2, 600)}, {"top_k": 2, "renormalise": True}
        ),
    }
    said = {}
    for name, case in calls.items():
        try:
            called(case)
            said[name] = "nothing"
        except RuntimeError as error:
            said[name] = str(error).splitlines()[0]
    return said


def main() -> None:
    """Print what differs, what was refused, and how many calls were compared."""
    fake = Fake()
    load_ops()
    empty = Case("silu_and_mul", "no rows", {"x": torch.empty(0, 8)})
    found: dict[str, Any] = {"why": eager.hand_over(fake.path), "differences": [], "calls": 0}
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for case in all_cases(dtype):
            found["calls"] += 1
            found["differences"] += differences(case, fake)
    fake.clear()
    found["empty"] = [tuple(called(empty).shape), len(fake.launches())]
    print(json.dumps(found | {"refusals": refusals()}))


if __name__ == "__main__":
    sys.exit(main())
