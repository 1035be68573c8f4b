"""Triton kernels to cubins and their entries of the table; needs Triton, no device and no torch."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import triton
from table import Kernel, Refused, parameter_bytes
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

PARAMETER_BASE = 0x210
"""Where kernel parameters start in constant bank 0 on sm_90."""

NULL_POINTERS = 2
"""Triton 3.4 and later end every parameter list with two scratch pointers."""


@dataclass(frozen=True, slots=True)
class Cubin:
    """A compiled kernel.

    Attributes:
        kernel: its entry of the table.
        data: the file's bytes.
        constants: what was compiled in; for the check by Triton's interpreter, not for the table.
    """

    kernel: Kernel
    data: bytes
    constants: Mapping[str, Any]


def compile_kernel(
    function: Any,
    parameters: Mapping[str, str],
    constants: Mapping[str, Any],
    aligned: Collection[str],
    target: GPUTarget,
    **options: int,
) -> Cubin:
    """Compile one specialisation.

    Args:
        function: a `triton.jit` function.
        parameters: name to Triton type of the run-time arguments.
        constants: values of the constexpr arguments.
        aligned: arguments that are multiples of 16.
        target: what to compile for.
        options: `num_warps`, `num_stages`.
    """
    signature = {**parameters, **dict.fromkeys(constants, "constexpr")}
    order = list(function.arg_names)
    source = ASTSource(
        fn=function,
        signature={name: signature[name] for name in order},
        constexprs=dict(constants),
        attrs={(order.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    return cubin_of(triton.compile(source, target=target, options=dict(options)))


def cubin_of(compiled: Any) -> Cubin:
    """The table's entry of a compiled Triton kernel.

    Raises:
        Refused: it needs what the probe's player does not provide.
    """
    metadata, data = compiled.metadata, compiled.asm["cubin"]
    scratch = [getattr(metadata, f"{kind}_scratch_size", 0) for kind in ("global", "profile")]
    clusters = getattr(metadata, "cluster_dims", None) or (1, 1, 1)
    if any(scratch) or tuple(clusters) != (1, 1, 1):
        raise Refused(f"{metadata.name} needs scratch {scratch} or clusters {clusters}")
    kinds = compiled.src.signature.items()
    kernel = Kernel(
        cubin=hashlib.sha256(data).hexdigest(),
        function=metadata.name,
        warps=metadata.num_warps,
        shared=metadata.shared,
        parameters=[(name, kind) for name, kind in kinds if kind != "constexpr"],
        null_pointers=NULL_POINTERS,
    )
    if declared_bytes(data, kernel.function) != parameter_bytes(kernel):
        raise Refused(f"{metadata.name}: the cubin takes other parameters than its signature says")
    names = compiled.src.fn.arg_names
    return Cubin(kernel, data, {names[at[0]]: v for at, v in compiled.src.constants.items()})


def declared_bytes(cubin: bytes, function: str) -> int:
    """Bytes of the parameter block that the cubin itself declares, from its constant bank 0.

    Raises:
        Refused: the cubin holds no such function.
    """
    sections = _sections(cubin)
    bank = sections.get(f".nv.constant0.{function}")
    if bank is None or f".text.{function}" not in sections:
        raise Refused(f"the cubin has no function {function}")
    return bank - PARAMETER_BASE


def _sections(elf: bytes) -> dict[str, int]:
    """Section names of a 64-bit ELF file with their sizes."""
    table, size, count, names = (
        *struct.unpack_from("<Q", elf, 0x28),
        *struct.unpack_from("<HHH", elf, 0x3A),
    )
    headers = [struct.unpack_from("<IIQQQQ", elf, table + size * i) for i in range(count)]
    strings = headers[names][4]
    return {_text(elf, strings + header[0]): header[5] for header in headers}


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()
