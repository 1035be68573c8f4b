"""Operators that stay whole in a piece: nodes with our cubins, planned and played without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from support.cuda_child import _import_inductor, gpu_pieces, in_a_gpu_build, planned
from support.fake_cuda import library
from support.flow import ask, built

from vcc.cache.store import Store
from vcc.engine.graphs.cubin import read_cubin
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.types import NodeKind, NodeTable, ParamKind
from vcc.engine.ops.cuda import cubins
from vcc.engine.ops.register import load_ops
from vcc.engine.request import Built

pytestmark = pytest.mark.skipif(bool(cubins.missing("sm_90")), reason=cubins.missing("sm_90"))

ROWS = {"T": (1, 512)}


def work_of(forward: Any, shapes: dict[str, Any], **parameters: tuple[int, ...]) -> list[Any]:
    """What a child tells of a piece's launches: function, grid, threads, arguments, access."""
    load_ops()

    def body() -> Any:
        made = planned(gpu_pieces(forward, shapes, ROWS, **parameters))
        return [
            [w.kernel.function, w.grid, w.kernel.warps * 32, dict(w.arguments), dict(w.access)]
            if hasattr(w, "grid")
            else ["product", w.a, w.w, w.d]
            for w in made.work
        ]

    return in_a_gpu_build(body)


def test_a_call_is_a_launch_with_arguments_by_name() -> None:
    def forward(self: Any, x: torch.Tensor, residual: torch.Tensor) -> Any:
        return torch.ops.vcc.fused_add_rms_norm(x, residual, self.w, 1e-5, 1.0)

    shapes = {"x": ("T", 4096), "residual": ("T", 4096)}
    ((name, grid, threads, given, access),) = work_of(forward, shapes, w=(4096,))
    assert (name, grid, threads) == ("vcc_fused_add_rms_norm_bf16", ["s0", 1, 1], 128)
    assert given["rows"] == "s0"
    assert (given["width"], given["row_threads"], given["x_stride"]) == (4096, 128, 4096)
    assert (given["eps"], given["weight_offset"]) == (1e-5, 1.0)
    assert len({given[name] for name in ("x", "residual", "weight", "out", "total")}) == 5
    assert access == {"x": "r", "residual": "r", "weight": "r", "out": "w", "total": "w"}


def test_rows_of_a_fused_product_are_read_where_they_lie() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        q, k = torch.nn.functional.linear(x, self.w).split([96, 32], dim=-1)
        return torch.ops.vcc.rms_norm(q, self.g, 1e-6), torch.ops.vcc.silu_and_mul(k)

    first, *rest = work_of(forward, {"x": ("T", 64)}, w=(128, 64), g=(96,))
    assert first[0] == "product"
    strides = {name: given["x_stride"] for name, _, _, given, _ in rest}
    assert strides == {"vcc_rms_norm_bf16": 128, "vcc_silu_and_mul_bf16": 128}


def test_quantised_values_and_scales_are_buffers_of_the_piece() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        q, scales = torch.ops.vcc.silu_and_mul_quant_dynamic(x, 128, 1e-9)
        return q.float() * scales.repeat_interleave(128, dim=-1)

    own = work_of(forward, {"x": ("T", 512)})[0]
    assert own[0] == "vcc_silu_and_mul_quant_block_bf16"
    assert own[3]["least"] == pytest.approx(1e-9)
    assert own[4] == {"x": "r", "out": "w", "scales": "w"}


def test_a_layout_that_no_kernel_takes_is_refused_by_name() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        return torch.ops.vcc.rms_norm(x[:, :32], self.g[:, 0], 1e-6)

    with pytest.raises(AssertionError, match="weight is not contiguous"):
        work_of(forward, {"x": ("T", 64)}, g=(32, 2))


LIMITS = {"max_num_batched_tokens": 64, "max_num_seqs": 8, "max_model_len": 128}
ALL = '{"custom_ops": ["all"]}'


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def artifact(store: Store) -> Built:
    """The demo for sm_90 with every custom op on: their platform's first back end is csrc."""
    _import_inductor()
    return built(
        ask("demo", target="sm_90", mode="full", dtype="bf16", config=ALL, **LIMITS), store
    )


def test_a_decoder_with_its_ops_on_holds_our_cubins(artifact: Built) -> None:
    table: NodeTable = decode(artifact.loaded.read("table/step"))
    index = cubins.index("sm_90")
    own = {entry.sha256: op for op, entry in index.cubins.items()}
    used = [
        (own[kernel.cubin], kernel.function)
        for node in table.nodes
        if node.kind is NodeKind.KERNEL and (kernel := table.kernels[node.target]).cubin in own
    ]
    layers = 4
    counts = {op: sum(1 for one, _ in used if one == op) for op, _ in used}
    assert counts["silu_and_mul"] == layers
    assert counts["rope_kv_write"] == layers, "the pass fuses both, at a cut"
    assert counts["rms_norm"] + counts["fused_add_rms_norm"] == 2 * layers + 1
    for op, function in used:
        data = bytes(artifact.loaded.read(f"cubin/{index.cubins[op].sha256}"))
        assert function in read_cubin(data).functions
    assert int(dict(artifact.loaded.manifest.host_rules)["driver"]) >= index.driver


def test_its_parameters_are_all_given(artifact: Built) -> None:
    """A block of ours ends with its last parameter: there are no null pointers behind it."""
    table: NodeTable = decode(artifact.loaded.read("table/step"))
    for node in table.nodes:
        if node.kind is not NodeKind.KERNEL:
            continue
        kernel = table.kernels[node.target]
        if not kernel.function.startswith("vcc_"):
            continue
        sizes = {ParamKind.I32: 4, ParamKind.F32: 4}
        ends = [one.offset + sizes.get(one.kind, 8) for one in node.params]
        assert max(ends) == kernel.param_bytes


def test_it_is_played_without_torch(artifact: Built, store: Store) -> None:
    """The double runs no kernel, but takes its parameters, grids and blocks as a driver does."""
    options = ["--target", "sm_90", "--mode", "full", "--dtype", "bf16"]
    options += ["--compilation-config", ALL, "--golden", "off", "--require-warm", "--json"]
    for name, value in LIMITS.items():
        options += [f"--{name.replace('_', '-')}", str(value)]
    words = ["vcc", "run", "demo", "--prompt", "It", "--max-new-tokens", "3", *options]
    code = (
        "import sys\nfrom vcc.cli.main import main\n"
        f"sys.argv = {words!r}\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "assert 'torch' not in sys.modules"
    )
    double = {"VCC_LIBCUDA": str(library()), "VCC_CACHE_DIR": str(store.root)}
    double["VCC_RECORD_PRODUCTS"] = "0"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | double, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["artifact"] == artifact.entry.artifact
