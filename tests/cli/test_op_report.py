"""Custom ops as `vcc compile`, its dry run and `vcc inspect artifact` show them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.key_artifacts import asked, publish

from vcc.cache.store import Store
from vcc.cli.op_report import op_lines

ROW = {
    "op": "rms_norm",
    "backend": "triton",
    "reason": "it is enabled; the first that can be used on rocm",
    "refused": [{"backend": "hip", "reason": "amd-aiter is not installed: pip install amd-aiter"}],
}


def test_a_line_an_op_and_one_for_each_other_reason() -> None:
    assert [line.split(maxsplit=1) for line in op_lines([ROW]).splitlines()] == [
        ["rms_norm", "triton   it is enabled; the first that can be used on rocm"],
        ["not", "hip  amd-aiter is not installed: pip install amd-aiter"],
    ]
    off = {**ROW, "backend": "native", "reason": "it is off", "refused": [{"reason": "it is off"}]}
    assert len(op_lines([off]).splitlines()) == 1


@pytest.mark.parametrize("found", [None, "x", 3, {}, [], ["rms_norm: on"], [None, 1]])
def test_a_manifest_from_elsewhere_may_say_anything(found: Any) -> None:
    assert op_lines(found) == ""


@pytest.mark.parametrize("refused", [None, "x", [3], [{"backend": None}], {"a": 1}])
def test_candidates_from_elsewhere_may_be_anything(refused: Any) -> None:
    assert op_lines([{"op": 1, "refused": refused}]).startswith("  1")


CONFIG = '{"custom_ops": ["none", "+rms_norm"]}'


def test_the_dry_run_says_it_before_anything_is_built(vcc: Any, engine: Any) -> None:
    done = vcc("compile", "demo", "--dry-run", "--compilation-config", CONFIG)
    assert done.code == 0
    assert "custom ops\n" in done.out
    assert '"+rms_norm" was asked for' in done.out
    found = vcc("compile", "demo", "--dry-run", "--json", "--compilation-config", CONFIG).json
    backends = {one["op"]: one["backend"] for one in found["ops"]}
    assert backends["rms_norm"] == "cpu"
    assert backends["silu_and_mul"] == "native"


def test_an_artifact_says_it_when_it_is_inspected(vcc: Any, own_store: Path) -> None:
    store = Store.open(own_store)
    publish(store, asked(config={"custom_ops": ["none", "+rms_norm"]}))
    shown = vcc("inspect", "artifact", "demo")
    assert "\ncustom ops\n" in shown.out
    told = vcc("inspect", "artifact", "demo", "--json").json["info"]["ops"]
    assert {one["op"]: one["backend"] for one in told}["rms_norm"] == "cpu"


def test_what_cannot_be_granted_ends_the_command_with_the_reason(vcc: Any, engine: Any) -> None:
    config = '{"custom_ops": ["+rms_norm:triton"]}'
    done = vcc("compile", "demo", "--dry-run", "--compilation-config", config)
    assert done.code == 2
    assert 'custom op "rms_norm" has no back end "triton" on cpu' in done.err
