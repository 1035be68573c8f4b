"""verify: is a stored artifact whole? Every byte, every table, every kernel that a table names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import prod

from vcc.cache.errors import IntegrityError
from vcc.cache.loaded import Loaded
from vcc.engine.graphs.blob_names import CONSTANT, CUBIN, TABLE
from vcc.engine.graphs.cubin import Cubin, read_cubin
from vcc.engine.graphs.golden import Golden
from vcc.engine.graphs.program import BLOB
from vcc.engine.graphs.program_check import decode as decode_program
from vcc.engine.graphs.table.decode import decode as decode_table
from vcc.engine.graphs.table.layout import DTYPES, MOST_SHARED
from vcc.engine.graphs.table.types import Kernel, NodeTable, Role
from vcc.engine.models.lora.spec import A, B
from vcc.engine.models.turned import turned_of
from vcc.engine.verify_ranges import check_ranges

REGISTERS = 65536
"""32-bit registers of a multiprocessor, on every architecture since sm_30: a block must fit."""

GOLDEN = "golden/"
DATA_ONLY = (TABLE, CUBIN, CONSTANT, GOLDEN)
"""Beginnings of the names of all blobs that a GPU artifact may hold."""

_HINT = "rebuild it: vcc compile"


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found whole.

    Attributes:
        blobs, size: blobs of the artifact and their bytes.
        contents: counts by kind: tables, nodes, kernels, cubins, pieces, constants.
    """

    blobs: int
    size: int
    contents: Mapping[str, int]


def verify(loaded: Loaded) -> Verified:
    """Read all of an artifact and check that it holds together; needs no torch and no device.

    Raises:
        IntegrityError: the first thing that is wrong, by name.
        StorageError: a blob cannot be read.
    """
    blobs = loaded.read_all()
    check = CHECKS.get(loaded.manifest.host_rules.get("loader", ""), _others)
    contents = check(loaded, blobs)
    return Verified(len(blobs), sum(map(len, blobs.values())), contents)


def _player(loaded: Loaded, blobs: Mapping[str, bytes]) -> dict[str, int]:
    for name in blobs:
        if not name.startswith(DATA_ONLY):
            raise _refused(f"blob {name} has no place in a GPU artifact", "it holds data only")
    tables = {n: decode_table(data) for n, data in blobs.items() if n.startswith(TABLE)}
    if not tables:
        raise _refused("the artifact has no node table", "")
    check_ranges(loaded.manifest, tables)
    arch = loaded.manifest.host_rules.get("arch", "").rstrip("af")
    cubins: dict[str, Cubin] = {}
    for name, table in tables.items():
        for digest, size in table.cubins:
            cubins[digest] = _cubin(name, digest, size, arch, blobs)
        for kernel in table.kernels:
            _check_kernel(name, kernel, cubins[kernel.cubin])
        _check_tensors(name, table, loaded, blobs)
    for name, golden in goldens_of(blobs).items():
        for kernel in decode_table(golden.table).kernels:
            if kernel.cubin not in cubins:
                raise _refused(f"cubin {kernel.cubin[:16]} is missing", f"{name} names it")
            _check_kernel(name, kernel, cubins[kernel.cubin])
    return {
        "tables": len(tables),
        "nodes": sum(len(table.nodes) for table in tables.values()),
        "kernels": sum(len(table.kernels) for table in tables.values()),
        "cubins": len(cubins),
        "constants": sum(name.startswith(CONSTANT) for name in blobs),
        "goldens": sum(name.startswith(GOLDEN) for name in blobs),
    }


def goldens_of(blobs: Mapping[str, bytes]) -> dict[str, Golden]:
    """The goldens of a GPU artifact by the name of their blob.

    Raises:
        IntegrityError: one is no golden.
    """
    return {n: Golden.decode(data) for n, data in blobs.items() if n.startswith(GOLDEN)}


def _cubin(table: str, digest: str, size: int, arch: str, blobs: Mapping[str, bytes]) -> Cubin:
    data = blobs.get(CUBIN + digest)
    if data is None:
        raise _refused(f"cubin {digest[:16]} is missing", f"{table} names it")
    if len(data) != size or sha256(data).hexdigest() != digest:
        raise _refused(f"cubin {digest[:16]} is another file", f"{table} says {size} bytes of it")
    found = read_cubin(data)
    if not _runs(found.target, arch):
        raise _refused(f"cubin {digest[:16]} is for {found.target}", f"the artifact is for {arch}")
    return found


def _runs(cubin: str, device: str) -> bool:
    """Cubins run on later architectures of their major number; recorded ones may be older."""
    have, wanted = (one.removeprefix("sm_") for one in (cubin, device))
    return have[:-1] == wanted[:-1] and have[-1:] <= wanted[-1:]


def _check_kernel(table: str, kernel: Kernel, cubin: Cubin) -> None:
    name = f"kernel {kernel.function} of {table}"
    found = cubin.functions.get(kernel.function)
    if found is None:
        raise _refused(f"{name} is not in its cubin", f"it has {', '.join(cubin.functions)}")
    if found.param_bytes != kernel.param_bytes:
        raise _refused(
            f"{name} is given {kernel.param_bytes} bytes of parameters",
            f"its cubin takes {found.param_bytes}",
        )
    threads = prod(kernel.block)
    if found.registers * threads > REGISTERS:
        raise _refused(f"{name} cannot be launched", f"{threads} threads of {found.registers}")
    if found.shared + kernel.shared > MOST_SHARED:
        raise _refused(f"{name} cannot be launched", f"{kernel.shared} bytes of shared memory")


def _check_tensors(
    table: str, found: NodeTable, loaded: Loaded, blobs: Mapping[str, bytes]
) -> None:
    bindings = loaded.manifest.info.get("bindings")  # a plain module has none
    turned = turned_of(loaded.manifest)
    bound = {*bindings, *turned} if isinstance(bindings, dict) else None
    for tensor in found.tensors:
        weight = tensor.role is Role.WEIGHT and not _is_adapters(tensor.target, loaded)
        if weight and bound is not None and tensor.target not in bound:
            raise _refused(f"weight {tensor.target} of {table} has no binding", "")
        if tensor.role is Role.CONSTANT:
            data = blobs.get(CONSTANT + tensor.target)
            size = prod(tensor.shape) * DTYPES[tensor.dtype]
            if data is None or len(data) != size:
                have = "it is missing" if data is None else f"it has {len(data)}"
                raise _refused(f"constant {tensor.target} of {table} needs {size} bytes", have)


def _is_adapters(target: str, loaded: Loaded) -> bool:
    """Whether a weight is written when adapters are loaded: no checkpoint holds it."""
    model = loaded.manifest.info.get("model")
    adapted = isinstance(model, dict) and model.get("enable_lora") is True
    return adapted and target.rpartition(".")[2] in (A, B)


def _pieces(loaded: Loaded, blobs: Mapping[str, bytes]) -> dict[str, int]:
    names = [name for name in blobs if name == BLOB or name.startswith(f"{BLOB}/")]
    programs = [decode_program(loaded.read(name)) for name in names or [BLOB]]
    code = {name.rpartition(".")[0] for name in blobs if name.endswith((".so", ".ops"))}
    for program in programs:
        for call in program.calls:
            if call.kind == "piece" and f"piece/{call.target}" not in code:
                raise _refused(f"piece {call.target[:16]} is missing", "the step program calls it")
        for value in program.of_role("constant"):
            if CONSTANT + value.target not in blobs:
                raise _refused(f"constant {value.target} is missing", "the step program reads it")
    return {
        "pieces": len(code),
        "calls": sum(len(program.calls) for program in programs),
        "constants": sum(name.startswith(CONSTANT) for name in blobs),
    }


def _others(loaded: Loaded, blobs: Mapping[str, bytes]) -> dict[str, int]:
    """Loaders that run the model itself: there is nothing but the manifest."""
    return {}


CHECKS: Mapping[str, Callable[[Loaded, Mapping[str, bytes]], dict[str, int]]] = {
    "Player": _player,
    "TorchLoader": _pieces,
}
"""What is checked beside the bytes, by the artifact's loader."""


def _refused(what: str, why: str) -> IntegrityError:
    return IntegrityError(what, why, _HINT)
