"""Build the demo's node table for a GPU on a machine without one, with torch's CPU wheel.

    python tests/gpu/probe/build_table.py --out build/gpu-probe/table

Writes `table.json` and one file for each cubin and constant. A second build in another folder gives
the same bytes. `--pieces 1` compiles the first unique piece only, for a quick look.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cubins import Cubin
    from fx_nodes import Compiled
    from table import Table

    from vcc.engine.graphs.program import Call, Program, Symbol, Value
    from vcc.engine.types import Passed, Pieces

LIMITS = {"max_tokens": 512, "max_seqs": 64, "block_size": 16, "table_width": 32}
SPLITTING_OPS = ("vcc::kv_write", "vcc::paged_attention")
SOURCES = "sources.json"
"""File in the scratch folder: kernel sources by digest, for `interpret.py`."""

SIZES = {"input_ids": "T", "block_table": "B", "kv_caches_0": "K"}
"""Step sizes by the input that carries each: tokens, sequences, KV blocks."""


def use_scratch(scratch: Path) -> None:
    """Compiler caches into a folder of this build; no line numbers, so no path enters a cubin."""
    os.environ |= {
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "TRITON_DISABLE_LINE_INFO": "1",
    }


def trace_step(model: str, dtype: str) -> tuple[Any, Passed]:
    """Trace the decoder's step on fake CUDA tensors; returns its spec and the graph."""
    import torch

    from vcc.engine.models.source import open_source
    from vcc.engine.ops.choice import OpChoice
    from vcc.engine.ops.register import load_ops
    from vcc.engine.passes.apply import PASSES, apply
    from vcc.engine.trace.decoder import StepShape, decoder_trace
    from vcc.engine.trace.trace import trace

    load_ops()
    source = open_source(model)
    with torch.device("cuda"):
        request = decoder_trace(
            source.spec, getattr(torch, dtype), OpChoice(), StepShape(*LIMITS.values())
        )
    return source, apply(trace(request), PASSES)


def build(model: str, dtype: str, out: Path, scratch: Path, pieces: int = 0) -> dict[str, Any]:
    """Build the table into `out` and return figures about it.

    Args:
        model: a model directory or `demo`.
        dtype: torch's name.
        out: the folder to write.
        scratch: compiler caches and the sources of the kernels.
        pieces: how many unique pieces to compile; 0 means all.
    """
    started = time.perf_counter()
    use_scratch(scratch)
    import cuda_shim
    from fx_nodes import compile_piece
    from table import check_table, write

    from vcc.engine.partition.split import split

    cuda_shim.install(cuda_shim.SM_90, scratch)
    imported = time.perf_counter()
    source, passed = trace_step(model, dtype)
    found = split(passed.traced, SPLITTING_OPS, ())
    traced = time.perf_counter()
    compiled = {p.id: compile_piece(p) for p in found.unique[: pieces or None]}
    done = time.perf_counter()
    own, ops, gemms = own_kernels(source.spec, found.program, dtype)
    table, blobs = assemble(source, passed, found, compiled, own, ops, gemms)
    check_table(table)
    write(table, out, blobs)
    _keep_sources(compiled, own, scratch / SOURCES)
    stages = {
        "import": imported - started,
        "trace_and_split": traced - imported,
        "pieces": done - traced,
        "own_kernels_and_write": time.perf_counter() - done,
    }
    return {"seconds": {k: round(v, 2) for k, v in stages.items()}, **figures(table, out)}


def own_kernels(spec: Any, program: Program, dtype: str) -> tuple[list[Cubin], Any, Any]:
    """The kernels of splitting ops and gemm nodes: cubins, ops and gemm variants of the table."""
    from main_path import gemm_variants, kv_write_op, paged_attention_op
    from triton.backends.compiler import GPUTarget

    target = GPUTarget("cuda", 90, 32)
    names = {_target(call) for call in program.calls if call.kind == "op"}
    makers = {"vcc::kv_write": kv_write_op, "vcc::paged_attention": paged_attention_op}
    made = {name: makers[name](spec, LIMITS, dtype, target) for name in sorted(names)}
    variants = gemm_variants(dtype, target)
    cubins = [cubin for cubin, _ in (*made.values(), *variants)]
    return cubins, {name: op for name, (_, op) in made.items()}, [v for _, v in variants]


def assemble(
    source: Any,
    passed: Passed,
    found: Pieces,
    compiled: Mapping[str, Compiled],
    own: list[Cubin],
    ops: Any,
    gemms: Any,
) -> tuple[Table, dict[str, bytes]]:
    """The table of a step and the files beside it."""
    from table import FORMAT, Table
    from table import Call as TableCall

    from vcc.engine.models.bindings import bindings_of

    names = {s.name: SIZES[s.source] for s in found.program.symbols}
    cubins = {c.kernel.cubin: c for piece in compiled.values() for c in piece.cubins.values()}
    cubins |= {c.kernel.cubin: c for c in own}
    constants = {k: v.contiguous().numpy().tobytes() for k, v in passed.traced.constants.items()}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in constants.items()}
    blobs = {f"{digest}.cubin": cubin.data for digest, cubin in cubins.items()}
    blobs |= {f"{digests[name]}.bin": data for name, data in constants.items()}
    calls = [
        TableCall(_target(call), [a for a in call.args if isinstance(a, str)])
        for call in found.program.calls
        if call.kind == "op" or call.target in compiled
    ]
    table = Table(
        format=FORMAT,
        target="sm_90",
        limits=dict(LIMITS),
        symbols=[_symbol(s, names) for s in found.program.symbols],
        values=[_value(v, names) for v in found.program.values],
        bindings={k: str(b) for k, b in bindings_of(source.spec, source.tensors).items()},
        constants=digests,
        kernels={digest: cubins[digest].kernel for digest in sorted(cubins)},
        pieces={identity: piece.piece for identity, piece in compiled.items()},
        ops=ops,
        gemms=gemms,
        calls=calls,
        outputs=found.program.outputs,
    )
    return table, blobs


def _target(call: Call) -> str:
    """A piece's identity, or an operator's name without its default overload."""
    return call.target.removesuffix(".default")


def _symbol(symbol: Symbol, names: Mapping[str, str]) -> Symbol:
    from msgspec.structs import replace

    return replace(symbol, name=names[symbol.name])


def _value(value: Value, names: Mapping[str, str]) -> Value:
    from msgspec.structs import replace

    return replace(value, shape=[_renamed(size, names) for size in value.shape])


def _renamed(size: Any, names: Mapping[str, str]) -> Any:
    if isinstance(size, list):
        return [size[0], *(_renamed(part, names) for part in size[1:])]
    return names[size] if isinstance(size, str) else size


def _keep_sources(compiled: Mapping[str, Compiled], own: list[Cubin], file: Path) -> None:
    """What Triton's interpreter needs to run the same kernels; not part of the table."""
    cubins = {c.kernel.cubin: c for piece in compiled.values() for c in piece.cubins.values()}
    texts = {d: text for piece in compiled.values() for d, text in piece.sources.items()}
    kept = {
        digest: {
            "function": cubin.kernel.function,
            "constants": dict(cubin.constants),
            "text": texts.get(digest),
        }
        for digest, cubin in (*cubins.items(), *((c.kernel.cubin, c) for c in own))
    }
    file.write_text(json.dumps(kept))


def figures(table: Table, folder: Path) -> dict[str, Any]:
    """Sizes and counts of a table on disk."""
    from collections import Counter

    files = sorted(folder.iterdir())
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + file.read_bytes())
    kinds = Counter(type(n).__name__.lower() for p in table.pieces.values() for n in p.nodes)
    return {
        "table_bytes": (folder / "table.json").stat().st_size,
        "cubins": len(table.kernels),
        "cubin_bytes": sum(f.stat().st_size for f in files if f.suffix == ".cubin"),
        "bytes": sum(f.stat().st_size for f in files),
        "digest": digest.hexdigest(),
        "unique_pieces": len(table.pieces),
        "calls": len(table.calls),
        "nodes_of_unique_pieces": dict(sorted(kinds.items())),
    }


def main() -> int:
    """Build and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, help="kept; a temporary folder by default")
    parser.add_argument("--pieces", type=int, default=0)
    options = parser.parse_args()
    scratch = options.scratch or Path(tempfile.mkdtemp(prefix="vcc-probe-"))
    try:
        print(
            json.dumps(
                build(options.model, options.dtype, options.out, scratch, options.pieces), indent=1
            )
        )
    finally:
        if options.scratch is None:
            shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
