"""docs/keys.md: every row of "what survives an upgrade" happens here, and every label is listed."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.key_artifacts import asked, made, model_with, publish

import vcc
from vcc.cache import manifest
from vcc.cache.store import Store
from vcc.engine.compile import keys, versions
from vcc.engine.compile.toolchain import Compiler
from vcc.engine.compile.versions import short_version
from vcc.engine.finding import find
from vcc.engine.forecast import Work, forecast
from vcc.engine.graphs.table import layout
from vcc.engine.request import Settled
from vcc.engine.runtime import host
from vcc.engine.session import Session

PAGE = Path(__file__).parents[1] / "docs" / "keys.md"
WORDS = {Work.NOTHING: "reused", Work.PLAN: "plan", Work.ALL: "again"}
TARGETS = {"CPU": "cpu", "GPU": "sm_90"}

SHORT = short_version(metadata.version("torch"))

Patch = pytest.MonkeyPatch


def rows() -> dict[str, tuple[str, ...]]:
    text = PAGE.read_text().split("<!-- survival -->")[1].split("<!-- end survival -->")[0]
    lines = [line.strip("|").split("|") for line in text.strip().splitlines()[2:]]
    return {cells[0].strip(): tuple(cell.strip() for cell in cells[1:]) for cells in lines}


@dataclass(frozen=True)
class Change:
    """What is done before a run and a compile: to the machine, and to what is asked for."""

    machine: Callable[[Patch], None] = lambda patch: None
    run: Callable[[Settled], Settled] = lambda settled: settled
    compile: Callable[[Settled], Settled] = lambda settled: settled


def installed(**other: str | None) -> Callable[[Patch], None]:
    """Distributions in other versions; None: not installed."""
    real = metadata.version

    def version(name: str) -> str:
        if name not in other:
            return real(name)
        found = other[name]
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    return lambda patch: patch.setattr(metadata, "version", version)


def libraries(patch: Patch) -> None:
    other = {"cuda": "13.1", "cublas": "13.1.0.3", "cudnn": "9.9", "nccl": "2.30"}
    patch.setattr(versions, "cuda_versions", lambda: other)


def device(**changes: Any) -> Callable[[Patch], None]:
    found = {"arch": "sm_90", "driver": 12080, "name": "NVIDIA H200"} | changes
    return lambda patch: patch.setattr(host, "_device", lambda: SimpleNamespace(**found))


def formats(version: str) -> Callable[[Patch], None]:
    def change(patch: Patch) -> None:
        for module in (manifest, versions):
            patch.setattr(module, "FORMAT_VERSION", version)

    return change


def flags(*, without: str = "", more: str = "") -> Callable[[Patch], None]:
    have = (frozenset().union(*host.LEVELS.values()) - {without}) | {more}
    return lambda patch: patch.setattr(host, "cpu_flags", lambda: have)


def python(patch: Patch) -> None:
    patch.setattr(platform, "python_version", lambda: "3.99.0")
    patch.setattr(sys, "version", "3.99.0 (main)")


def surroundings(patch: Patch) -> None:
    for name, value in {
        "HOME": "/nowhere",
        "USER": "somebody",
        "VCC_LOG_LEVEL": "debug",
        "CUDA_VISIBLE_DEVICES": "7",
        "TMPDIR": "/tmp",
    }.items():
        patch.setenv(name, value)


def set_to(target: object, name: str, value: object) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(target, name, value)


def other_sizes(settled: Settled) -> Settled:
    config = {"capture_sizes": [1, 2], "cuda_graph_mode": "full"}
    return asked(target=str(settled.request.target), config=config)


def other_weights(settled: Settled) -> Settled:
    request = settled.request
    source = replace(request.source, revision="another")
    return replace(settled, request=replace(request, source=source))


def other_model(settled: Settled) -> Settled:
    return asked(target=str(settled.request.target), source=model_with(rms_norm_eps=1e-3))


CHANGES: Mapping[str, Change] = {
    "torch, a patch release": Change(installed(torch=f"{SHORT}.99+cpu")),
    "torch, a minor release": Change(installed(torch="2.99.0+cpu")),
    "torch is removed": Change(installed(torch=None)),
    "Triton": Change(installed(triton="9.9.9")),
    "CUDA, cuBLAS, cuDNN or NCCL of torch": Change(libraries),
    "driver, to a later one": Change(device(driver=99000)),
    "driver, to one older than the artifact needs": Change(device(driver=12030)),
    "GPU, to another of the same architecture": Change(device(name="NVIDIA H100")),
    "GPU, to another architecture": Change(device(arch="sm_80")),
    "vcc, another version": Change(set_to(vcc, "__version__", "9.9.9")),
    "vcc, its build side only": Change(set_to(keys, "engine_digest", lambda: "ab" * 32)),
    "vcc, another native interface": Change(set_to(versions, "ABI_VERSION", 999)),
    "vcc, a later minor format": Change(formats("1.99")),
    "vcc, another version of node tables": Change(set_to(layout, "VERSION", 99)),
    "vcc, another major format": Change(formats("2.0")),
    "Python": Change(python),
    "CPU, to another with the level's instructions": Change(flags(more="amx_tile")),
    "CPU, to one without them": Change(flags(without="avx2")),
    "CPU, to another family": Change(set_to(platform, "machine", lambda: "riscv64")),
    "C++ compiler": Change(set_to(keys, "find_compiler", lambda: Compiler("g++", "99.1"))),
    "capture sizes or graph mode of a build": Change(compile=other_sizes),
    "model, another revision of the weights": Change(run=other_weights, compile=other_weights),
    "model, its configuration": Change(run=other_model, compile=other_model),
    "`HOME`, account, log level, device index, temporary folder": Change(surroundings),
}
MISSES = {"store": "the store is empty", "model": "no artifact for this model"}


def found_by_a_run(settled: Settled, store: Store) -> str:
    found = find(Session(settled, store))
    if found.entries:
        return "hit"
    if found.refused is not None:
        return f"miss: `{found.refused.rule}`"
    return "miss: " + next(word for word, why in MISSES.items() if found.why.startswith(why))


def test_the_table_and_the_changes_have_the_same_rows() -> None:
    assert list(rows()) == list(CHANGES)


@pytest.mark.parametrize("name", CHANGES)
def test_a_row_of_the_table_is_what_happens(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, cells = CHANGES[name], []
    for target in TARGETS.values():
        device()(monkeypatch)
        flags()(monkeypatch)
        store, settled = Store.open(tmp_path / target), asked(target=target)
        publish(store, settled)
        assert found_by_a_run(settled, store) == "hit"
        assert forecast(settled, store).work is Work.NOTHING
        with monkeypatch.context() as patch:
            change.machine(patch)
            cells.append(found_by_a_run(change.run(settled), store))
            cells.append(WORDS[forecast(change.compile(settled), store).work])
    assert tuple(cells) == rows()[name]


def listed() -> list[str]:
    """The labels of the table of factors."""
    text = PAGE.read_text().split("## Factors")[1].split("## What survives")[0]
    return [
        label
        for line in text.splitlines()
        if line.startswith("| ")
        for label in re.findall(r"`([^`]+)`", line.split("|")[2])
    ]


def test_every_label_of_every_key_is_in_the_table_of_factors() -> None:
    patterns = listed()
    for target in TARGETS.values():
        found = made(asked(target=target))
        labels = {label for label, _ in (*found.request, *found.code_key, *found.plan_key)}
        unknown = {one for one in labels if not any(fnmatch(one, p) for p in patterns)}
        assert unknown == set()


def test_every_label_of_the_table_is_in_some_key() -> None:
    """`recorded.*` needs a GPU, `env.CXX` a variable, `user_*` code of a user's.

    Those of models of transformers are looked at in `engine/models/test_traced_keys.py`.
    """
    found = [made(asked(target=target)) for target in TARGETS.values()]
    found.append(made(asked(config={"custom_ops": ["all"]}, target="sm_90")))
    found.append(made(asked(kv_cache_dtype="fp8")))
    keys_of = (pair for one in found for pair in (*one.request, *one.code_key, *one.plan_key))
    needy = {
        "recorded.device",
        "recorded.cuda",
        "env.CXX",
        "user_pass.mine:PASS",
        "user_op.rms_norm",
        *("version.transformers", "model.source", "model.layout"),
    }
    labels = {label for label, _ in keys_of} | needy
    assert [p for p in listed() if not any(fnmatch(one, p) for one in labels)] == []


def factors() -> list[tuple[list[str], tuple[str, ...]]]:
    """(labels, cells of request, code key and plan key) of each row."""
    text = PAGE.read_text().split("## Factors")[1].split("## What survives")[0]
    lines = [line.split("|") for line in text.splitlines() if line.startswith("| ")][1:]
    return [
        (re.findall(r"`([^`]+)`", line[2]), tuple(cell.strip() for cell in line[3:6]))
        for line in lines
    ]


def test_the_table_says_where_each_factor_stands() -> None:
    cpu, gpu = (made(asked(target=one, kv_cache_dtype="fp8")) for one in TARGETS.values())
    base, open_fields = set(dict(cpu.base)), set(cpu.open_fields)
    code = {"CPU": set(dict(cpu.code_key)), "GPU": set(dict(gpu.code_key))}
    plan, wrong = set(dict(cpu.plan_key)), []
    for labels, (request, in_code, in_plan) in factors():
        for label in labels:
            in_both = _any(label, code["CPU"]) and _any(label, code["GPU"])
            stands = (_any(label, base), _any(label, open_fields), in_both, _any(label, plan))
            said = (request == "base", request == "open", in_code == "yes", in_plan == "yes")
            if in_code in ("yes", "", "by `target`") and in_plan != "recorded" and said != stands:
                wrong.append((label, said, stands))
    assert wrong == []


def _any(pattern: str, labels: set[str]) -> bool:
    return any(fnmatch(label, pattern) for label in labels)
