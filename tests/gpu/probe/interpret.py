"""Play a table on the CPU: every kernel by Triton's interpreter, from the sources kept at build.

    python tests/gpu/probe/interpret.py --table DIR --sources FILE

Checks the table itself (order, names, grids, sizes) without a device, in fp32: the interpreter's
matrix product does not know bf16. It must be chosen before Triton is imported, so run it alone.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import kernels
import torch
from batches import Sequences
from steps import Ready, Tensor, expand
from support.eager_step import EagerStepper, load_decoder
from table import Table, read

from vcc.engine.models.source import DEMO

BLOCKS = 40

HEADER = """import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers
"""


class Interpreter:
    """A table's kernels as Python functions.

    Args:
        table: the node table.
        sources: `sources.json` of the build.
        scratch: where generated modules are written.
    """

    def __init__(self, table: Table, sources: Path, scratch: Path) -> None:
        self._table = table
        kept = json.loads(sources.read_text())
        self._constants = {digest: entry["constants"] for digest, entry in kept.items()}
        self._functions = {
            digest: getattr(_module(entry, digest, scratch), entry["function"])
            for digest, entry in kept.items()
        }

    def run(self, sizes: Mapping[str, int], given: dict[str, torch.Tensor]) -> torch.Tensor:
        """One step; returns the first output.

        Args:
            sizes: T, B and K.
            given: weights, constants, inputs and caches by value name; caches are written.
        """
        step = expand(self._table, sizes)
        memory = {name: _poisoned(size) for name, size in step.buffers.items()}
        memory |= {name: value.flatten().view(torch.uint8) for name, value in given.items()}
        for node in step.nodes:
            self._launch(node, memory)
        return _output(self._table, sizes, memory)

    def _launch(self, node: Ready, memory: Mapping[str, torch.Tensor]) -> None:
        names = [name for name, _ in self._table.kernels[node.kernel].parameters]
        words = {
            name: _tensor(word, memory) if isinstance(word, Tensor) else word
            for name, word in zip(names, node.words, strict=True)
        }
        self._functions[node.kernel][node.grid](**words, **self._constants[node.kernel])


def _poisoned(size: int) -> torch.Tensor:
    return torch.full((size,), 0xFF, dtype=torch.uint8)


def _tensor(word: Tensor, memory: Mapping[str, torch.Tensor]) -> torch.Tensor:
    flat = memory[word.home][word.offset :]
    return flat.view(getattr(torch, word.dtype))


def _output(
    table: Table, sizes: Mapping[str, int], memory: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    value = next(v for v in table.values if v.name == table.outputs[0])
    return memory[value.name].view(getattr(torch, value.dtype)).view(sizes["B"], -1)


def _module(entry: Mapping[str, Any], digest: str, scratch: Path) -> ModuleType:
    if entry["text"] is None:
        return kernels
    file = scratch / f"k_{digest[:16]}.py"
    file.write_text(_interpretable(entry["text"]))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Portable(ast.NodeTransformer):
    """Device library calls become Triton's own, which the interpreter has; asserts go."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.decorator_list = [d for d in node.decorator_list if ast.unparse(d) == "triton.jit"]
        node.body = [s for s in node.body if not ast.unparse(s).startswith("tl.device_assert")]
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        names = {"libdevice": "tl", "tl_math": "tl.math"}
        return ast.parse(names.get(node.id, node.id), mode="eval").body


def _interpretable(text: str) -> str:
    """Inductor's source without its device: the kernel and the import of its helpers."""
    kept = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
    return HEADER + "\n".join(ast.unparse(_Portable().visit(node)) for node in kept) + "\n"


def main() -> int:
    """Compare a fp32 table of the demo with the decoder run eagerly; 1 when they differ."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--sources", type=Path, required=True)
    options = parser.parse_args()
    table, blobs = read(options.table)
    with tempfile.TemporaryDirectory() as scratch:
        worst = _compare(Interpreter(table, options.sources, Path(scratch)), table, blobs)
    print(json.dumps({"largest_error_share": worst}))
    return int(not worst < 1e-4)


def _compare(interpreter: Interpreter, table: Table, blobs: Mapping[str, bytes]) -> float:
    """A padded prefill of two sequences, a decode of both, then T = B = 1."""
    decoder = load_decoder(DEMO, "float32")
    stepper = EagerStepper(decoder, block_size=16, blocks=BLOCKS, table=32)
    seqs, given, worst = Sequences(BLOCKS, 16, 32), _bound(table, blobs, decoder), 0.0
    schedule = (
        ({0: [5, 900, 31, 7], 1: [44, 2]}, 7, 3),
        ({0: [8], 1: [77]}, 2, 2),
        ({0: [9]}, 1, 1),
    )
    for work, tokens, size in schedule:
        inputs = seqs.batch(work, tokens, size)
        given |= {name: torch.from_numpy(array) for name, array in inputs.items()}
        got = interpreter.run({"T": tokens, "B": size, "K": BLOCKS}, given)
        want = torch.stack([rows[-1] for rows in stepper.step(work).values()])
        error = (got[: len(work)] - want).abs().max() / want.abs().max()
        worst = max(worst, float(error.nan_to_num(float("inf"))))
    return worst


def _bound(table: Table, blobs: Mapping[str, bytes], decoder: Any) -> dict[str, torch.Tensor]:
    weights, cache = dict(decoder.named_parameters()), decoder.spec.kv_shape(BLOCKS, 16)
    given = {}
    for value in table.values:
        if value.role == "weight":
            given[value.name] = weights[value.target].detach()
        elif value.role == "constant":
            data = bytearray(blobs[table.constants[value.target]])
            given[value.name] = torch.frombuffer(data, dtype=getattr(torch, value.dtype))
        elif value.name.startswith("kv_cache"):
            given[value.name] = torch.full(cache, float("nan"))
    return given


if __name__ == "__main__":
    sys.exit(main())
