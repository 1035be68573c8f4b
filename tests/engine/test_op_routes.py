"""The back ends of a request's custom ops: what keys, manifest, dry run and build agree on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from vcc.cache.errors import ConfigError, DeviceError, UsageError
from vcc.engine import native, op_routes
from vcc.engine.compile.artifact import Made, manifest_of
from vcc.engine.compile.keys import build_keys, keys_here
from vcc.engine.config.parse import parse_config, parse_model
from vcc.engine.config.target import Target
from vcc.engine.config.types import ParallelConfig
from vcc.engine.models.source import Source, open_source
from vcc.engine.op_routes import key_entries, op_choice
from vcc.engine.request import BuildRequest, Settled, look_up, request_pairs, settle

MINE = """
from vcc.engine.ops.layers import RMSNorm
from {helper} import FACTOR

class Fast(RMSNorm):
    def forward_native(self, x, residual=None):
        total = x if residual is None else x + residual
        normed = self._norm(total) * FACTOR
        return normed if residual is None else (normed, total)

class Stranger:
    pass

number = 3
"""

Settle = Callable[..., Settled]


@pytest.fixture(scope="module")
def demo() -> Source:
    return open_source("demo", weights="none")


@pytest.fixture
def settled(demo: Source) -> Settle:
    def make(*tokens: str, target: str = "cpu", mode: str = "vcc", **model: Any) -> Settled:
        config: dict[str, Any] = {"mode": mode}
        if tokens:
            config["custom_ops"] = list(tokens)
        return settle(
            BuildRequest(
                source=demo,
                model=parse_model({"source": "demo", **model}),
                compilation=parse_config(config),
                parallel=ParallelConfig(),
                target=Target.parse(target),
            )
        )

    return make


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A module with a replacement in the working directory, and a helper of it; its name."""
    name = "own_layer_" + str(abs(hash(request.node.name)))
    (tmp_path / f"{name}_help.py").write_text("FACTOR = 1.0\n")
    (tmp_path / f"{name}.py").write_text(MINE.format(helper=f"{name}_help"))
    monkeypatch.chdir(tmp_path)
    return name


def routes(settled: Settled) -> Mapping[str, str]:
    return {one.op: one.route.backend for one in op_routes.op_routes(settled)}


def test_a_cpu_build_takes_our_compiled_kernels_where_they_are_switched_on(settled: Settle) -> None:
    assert set(routes(settled()).values()) == {"native"}
    found = routes(settled("all"))
    assert (found["rms_norm"], found["rotary_embedding"]) == ("cpu", "cpu")
    assert key_entries(settled("+rms_norm")) == {"op.rms_norm": "cpu"}
    assert key_entries(settled()) == {}


def test_a_gpu_build_takes_cuda_or_triton(settled: Settle) -> None:
    found = {one.op: one for one in op_routes.op_routes(settled("all", target="sm_90"))}
    assert found["rms_norm"].route.backend in ("cuda", "triton")
    assert op_choice(settled("all", target="sm_90")).arch == "sm_90"


def test_an_install_without_the_library_makes_another_key(
    settled: Settle, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_library = build_keys(settled("+rms_norm")).code
    monkeypatch.setattr(native, "library", lambda name: None)
    without = build_keys(settled("+rms_norm")).code
    assert with_library["op.rms_norm"] == "cpu"
    assert "op.rms_norm" not in without
    (one,) = [o for o in op_routes.op_routes(settled("+rms_norm")) if o.op == "rms_norm"]
    assert one.as_dict()["refused"][0]["reason"].startswith("libvcc_ops.so was not built")


def test_what_is_asked_for_is_granted_or_refused_with_the_reason(
    settled: Settle, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert routes(settled("+rms_norm:cpu"))["rms_norm"] == "cpu"
    build_keys(settled("+rms_norm:cpu"))
    assert routes(settled("+rms_norm:triton", target="sm_90"))["rms_norm"] == "triton"
    with pytest.raises(ConfigError, match='has no back end "triton" on cpu') as caught:
        settled("+rms_norm:triton")
    assert caught.value.hint == "cpu has cpu, native"
    with pytest.raises(ConfigError, match='has no back end "hip" on cuda'):
        settled("+rms_norm:rocm", target="sm_90")
    monkeypatch.setattr(native, "library", lambda name: None)
    with pytest.raises(DeviceError, match="cannot run on its cpu back end") as denied:
        build_keys(settled("+rms_norm:cpu"))
    assert "libvcc_ops.so was not built" in str(denied.value)
    assert denied.value.hint == 'write "+rms_norm" to take the first that can be used: native'
    assert keys_here(settled("+rms_norm:cpu")).code["compiler"] == "none"


def test_the_manifest_tells_each_op_its_back_end_the_reason_and_what_was_refused(
    settled: Settle,
) -> None:
    request = settled("none", "+rms_norm", "+silu_and_mul:native")
    code = build_keys(request).code
    told = [manifest_of(request, code, Made(), {}).info["ops"] for _ in range(2)]
    assert told[0] == told[1]
    rows = {row["op"]: row for row in told[0]}
    assert rows["rms_norm"] == {
        "op": "rms_norm",
        "backend": "cpu",
        "reason": '"+rms_norm" was asked for; the first that can be used on cpu',
        "refused": [],
    }
    off = 'silu_and_mul is off: "+silu_and_mul:native" was asked for'
    assert rows["silu_and_mul"] == {
        "op": "silu_and_mul",
        "backend": "native",
        "reason": off,
        "refused": [{"backend": "cpu", "reason": off}],
    }


def test_a_class_of_the_users_takes_the_layers_place(settled: Settle, mine: str) -> None:
    request = settled(f"+rms_norm={mine}:Fast")
    choice = op_choice(request)
    assert dict(choice.replacements)["RMSNorm"].__name__ == "Fast"
    (one,) = [o for o in op_routes.op_routes(request) if o.op == "rms_norm"]
    assert (one.route.backend, one.route.reason) == (
        "native",
        "Fast has a forward_native of its own",
    )


def test_a_build_traces_the_class_of_the_users(settled: Settle, mine: str) -> None:
    from vcc.engine.compile.source import trace_request
    from vcc.engine.trace.trace import trace

    Path(f"{mine}_help.py").write_text("FACTOR = 3.25\n")
    request = settled(f"+rms_norm={mine}:Fast", max_num_batched_tokens=64)
    graph = trace(trace_request(request)).graph
    scaled = [node for node in graph.graph.nodes if 3.25 in node.args]
    assert len(scaled) == 2 * request.request.source.spec.layers + 1


def test_its_source_and_what_that_imports_are_in_the_request_and_in_the_code_key(
    settled: Settle, mine: str, tmp_path: Path
) -> None:
    seen = []
    for file in (None, f"{mine}_help.py", f"{mine}.py"):
        if file:
            (tmp_path / file).write_text((tmp_path / file).read_text() + "\n")
        request = settled(f"+rms_norm={mine}:Fast")
        pairs, open_fields = request_pairs(request)
        digest = pairs["user_op.rms_norm"]
        assert "user_op.rms_norm" in open_fields
        assert look_up(request)[1]["user_op.rms_norm"] == digest
        assert build_keys(request).code["user_op.rms_norm"] == digest
        seen.append(digest)
    assert len(set(seen)) == 3
    assert "user_op.rms_norm" not in request_pairs(settled("+rms_norm"))[0]


def test_a_request_does_not_run_the_users_code(settled: Settle, mine: str) -> None:
    Path(f"{mine}.py").write_text("raise SystemExit('ran')\n")
    look_up(settled(f"+rms_norm={mine}:Fast"))
    with pytest.raises(ConfigError, match="cannot be loaded"):
        op_choice(settled(f"+rms_norm={mine}:Fast"))


def test_an_installed_class_is_named_by_its_entry_point(
    settled: Settle, mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = metadata.EntryPoint("fast", f"{mine}:Fast", "vcc.ops")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point])
    choice = op_choice(settled("+rms_norm=fast"))
    assert dict(choice.replacements)["RMSNorm"].__name__ == "Fast"
    with pytest.raises(ConfigError, match='no installed layer "fats"') as caught:
        look_up(settled("+rms_norm=fats"))
    assert 'did you mean "fast"' in caught.value.hint


WRONG = {
    "Stranger": (UsageError, "Stranger is not a subclass of RMSNorm"),
    "number": (UsageError, "it is a int, not a class"),
    "Absent": (ConfigError, "has no Absent"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_take_the_place_is_refused_by_name(
    settled: Settle, mine: str, name: str
) -> None:
    kind, message = WRONG[name]
    with pytest.raises(kind, match=message):
        op_choice(settled(f"+rms_norm={mine}:{name}"))


def test_where_nothing_is_built_no_class_of_the_users_runs(settled: Settle, mine: str) -> None:
    with pytest.raises(ConfigError, match="makes its layers where it runs") as caught:
        settled(f"+rms_norm={mine}:Fast", mode="none")
    assert "--compile vcc" in caught.value.hint


def test_routes_are_known_without_torch() -> None:
    code = (
        "import sys\n"
        "from vcc.engine.op_routes import op_routes\n"
        "from vcc.engine.compile.keys import build_keys\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_element_types_and_numbers_of_the_model_are_held_against_the_kernels(
    settled: Settle, demo: Source
) -> None:
    assert op_choice(settled("all", dtype="fp32")).dtype == "float32"
    facts = op_routes.facts_of(settled())
    assert facts["width"] == demo.spec.hidden
    other = replace(settled().request, source=replace(demo, kind="module"))
    assert op_routes.facts_of(replace(settled(), request=other)) == {}


def test_a_recording_takes_triton_and_says_why(settled: Settle) -> None:
    found = {
        one.op: one for one in op_routes.op_routes(settled("all", target="sm_90", mode="none"))
    }
    route = found["rms_norm"].route
    assert route.backend == "triton"
    assert {one.backend: one.refusal for one in route.refused}["cuda"] == op_routes.RECORDED
