"""vcc verify: a stored artifact is whole, or what is wrong with it is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

import pytest
from support.cli_reference import PAGE, differences, shapes
from support.fake_cuda.fixtures import fake
from support.golden_tables import PIECE, copying
from support.gpu_artifacts import cubin, publish, table_and_blobs
from support.key_artifacts import asked

from vcc.cache.errors import Exit
from vcc.cache.store import Store
from vcc.engine.graphs.table.encode import encode
from vcc.engine.request import request_pairs
from vcc.engine.runtime.player import device as devices

__all__ = ["fake"]

Blobs = dict[str, bytes]


def test_a_whole_artifact_is_counted(vcc, own_store):
    entry = publish(Store.open(None))
    text = vcc("verify", "demo").out
    assert text.startswith(f"{entry.artifact[:12]} demo for sm_90\nwhole: 4 blobs")
    assert "1 table, 9 nodes, 3 kernels, 2 cubins, 1 constant" in text
    found = vcc("verify", entry.artifact[:10], "--json").json
    assert found["contents"]["nodes"] == 9
    assert differences(shapes(PAGE.read_text())["verify"], found) == []


def asked_for(**model: str) -> dict[str, object]:
    """The request of a manifest, as a build for a GPU writes it."""
    pairs, open_fields = request_pairs(asked(target="sm_90", **model))
    return {"request": tuple(sorted(pairs.items())), "open_fields": open_fields}


def test_options_of_the_model_choose_the_artifact(vcc, own_store):
    store = Store.open(None)
    wanted = publish(store, **asked_for(dtype="fp32"), created=1)
    other = publish(store, **asked_for(dtype="bf16"), created=2)
    gpu = ("verify", "demo", "--json", "--target", "sm_90")
    assert vcc("verify", "demo", "--json").json["artifact"] == other.artifact
    assert vcc(*gpu, "--dtype", "fp32").json["artifact"] == wanted.artifact
    assert vcc(*gpu, "--dtype", "bf16").json["artifact"] == other.artifact
    missing = vcc("verify", "demo", "--target", "sm_90", "--dtype", "fp16")
    assert missing.code == Exit.NEGATIVE
    assert "nearest model.dtype: found 'bf16', wanted 'fp16'" in missing.err
    assert "vcc compile demo --target sm_90 --dtype fp16" in missing.err
    assert "no artifact for demo" in vcc("verify", "demo", "--target", "cpu").err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--dtype", "fp32"), "does not go with --dtype"),
        (("-O", "0"), "does not go with -O"),
        (("--jobs", "2"), "--jobs says how --interpret builds"),
    ],
)
def test_options_that_choose_nothing_are_refused(vcc, own_store, words, said):
    entry = publish(Store.open(None))
    done = vcc("verify", entry.artifact[:10], *words)
    assert done.code == Exit.USAGE, done.out
    assert said in done.err


def test_goldens_run_on_the_device_and_a_difference_is_an_answer(vcc, own_store, fake, monkeypatch):
    monkeypatch.setenv("VCC_LIBCUDA", fake.path)
    devices._opened.cache_clear()
    golden = copying()
    blobs = {"table/step": golden.table, f"golden/{PIECE}": golden.encode()}
    info = {"bindings": {"0": "w"}, "goldens": {"b" * 64: "it is too large"}}
    publish(Store.open(None), blobs, info=info)
    assert "1 golden" in vcc("verify", "demo").out
    text = vcc("verify", "demo", "--run").out
    assert "1 piece computes what its golden says" in text
    assert "bbbbbbbbbbbb has no golden: it is too large" in text
    found = vcc("verify", "demo", "--run", "--json").json
    assert found["run"]["checked"] == [PIECE]

    other = replace(golden, references=(golden.references[0] * 2,))
    entry = publish(Store.open(None), blobs | {f"golden/{PIECE}": other.encode()}, info=info)
    done = vcc("verify", entry.artifact, "--run")
    assert done.code == Exit.NEGATIVE
    assert f"piece {PIECE[:12]} computes something else" in done.err


def test_verifying_imports_no_torch(spawn, own_store):
    publish(Store.open(None))
    code = "import sys; from vcc.cli import main\n"
    code += "sys.exit(main.run(['verify', 'demo']) or 'torch' in sys.modules)"
    process = spawn(code=code)
    _, error = process.communicate()
    assert process.returncode == 0, error


def test_a_changed_byte_is_found(vcc, own_store):
    publish(Store.open(None))
    blob = max(
        (p for p in own_store.rglob("*") if p.is_file()),
        key=lambda p: b"vcctable" in p.read_bytes(),
    )
    data = bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 1
    blob.chmod(0o600)
    blob.write_bytes(data)
    done = vcc("verify", "demo")
    assert done.code == Exit.INTEGRITY, done.out


def without_a_cubin(blobs: Blobs) -> Blobs:
    return {n: d for n, d in blobs.items() if not n.startswith("cubin/")}


def with_a_library(blobs: Blobs) -> Blobs:
    return {**blobs, "piece/0.so": b"\x7fELF"}


def without_a_table(blobs: Blobs) -> Blobs:
    return {n: d for n, d in blobs.items() if n != "table/step"}


def with_a_broken_table(blobs: Blobs) -> Blobs:
    return {**blobs, "table/step": blobs["table/step"][:-1]}


def without_a_constant(blobs: Blobs) -> Blobs:
    return {n: d for n, d in blobs.items() if not n.startswith("constant/")}


def with_a_short_constant(blobs: Blobs) -> Blobs:
    name = next(n for n in blobs if n.startswith("constant/"))
    return {**blobs, name: b"\0"}


def with_cubins(*functions: tuple[str, int, int], arch: int = 90) -> Callable[[Blobs], Blobs]:
    """All kernels in one cubin of these functions."""

    def change(blobs: Blobs) -> Blobs:
        table, _ = table_and_blobs()
        data = cubin(*functions, arch=arch)
        digest = sha256(data).hexdigest()
        kernels = tuple(replace(one, cubin=digest) for one in table.kernels)
        made = replace(table, kernels=kernels, cubins=((digest, len(data)),))
        others = {n: d for n, d in blobs.items() if n.startswith("constant/")}
        return {**others, "table/step": encode(made), f"cubin/{digest}": data}

    return change


KERNELS = (("kernel", 40, 56), ("reduce", 18, 48), ("gemm", 168, 72))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (without_a_cubin, "is missing"),
        (with_a_library, "blob piece/0.so has no place in a GPU artifact"),
        (without_a_table, "the artifact has no node table"),
        (with_a_broken_table, "node table"),
        (without_a_constant, "needs 4 bytes"),
        (with_a_short_constant, "needs 4 bytes"),
        (with_cubins(*KERNELS, arch=80), "is for sm_80"),
        (with_cubins(*KERNELS[:2]), "kernel gemm of table/step is not in its cubin"),
        (with_cubins(*KERNELS[:2], ("gemm", 168, 80)), "is given 72 bytes of parameters"),
        (with_cubins(("kernel", 600, 56), *KERNELS[1:]), "kernel kernel of table/step cannot be"),
    ],
)
def test_what_does_not_hold_together_is_named(vcc, own_store, change, what):
    publish(Store.open(None), change(table_and_blobs()[1]))
    done = vcc("verify", "demo")
    assert done.code == Exit.INTEGRITY, done.out
    assert what in done.err


def test_a_weight_without_a_binding_is_named(vcc, own_store):
    publish(Store.open(None), info={"bindings": {}})
    done = vcc("verify", "demo")
    assert done.code == Exit.INTEGRITY
    assert "weight model.w of table/step has no binding" in done.err


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('channels_last(tied("w"))', ""),
        ('tensor("w")', "turned weights are refused"),
        ("channels_last(", "a weight binding cannot be read"),
    ],
)
def test_a_turned_weight_is_bound_by_an_expression_of_its_own(vcc, own_store, text, why):
    publish(Store.open(None), info={"bindings": {}, "turned": {"model.w": text}})
    done = vcc("verify", "demo")
    assert done.code == (Exit.INTEGRITY if why else 0)
    assert why in done.err


@pytest.mark.parametrize(("model", "whole"), [({"enable_lora": True}, True), ({}, False)])
def test_matrices_of_adapters_are_bound_to_no_checkpoint(vcc, own_store, model, whole):
    table, blobs = table_and_blobs()
    tensors = tuple(
        replace(one, target="q_proj.lora_a") if one.target == "model.w" else one
        for one in table.tensors
    )
    blobs |= {"table/step": encode(replace(table, tensors=tensors))}
    publish(Store.open(None), blobs, info={"bindings": {}, "model": model})
    assert (vcc("verify", "demo").code == 0) is whole


def test_another_loaders_artifact_has_its_bytes_checked(vcc, engine):
    vcc("compile", "demo")
    assert "whole: 2 blobs" in vcc("verify", "demo").out


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (("verify", "ffffffff"), Exit.NEGATIVE, "no artifact ffffffff"),
        (("verify", "demo", "--interpret"), Exit.USAGE, "--interpret is for GPU code"),
        (("verify", "demo", "--interpret", "--run"), Exit.USAGE, "do not go together"),
        (("verify", "demo", "--tokens", "5"), Exit.USAGE, "which steps --interpret runs"),
        (("verify", "demo", "--interpret", "--target", "sm_70"), Exit.USAGE, "sm_70"),
        (
            ("verify", "demo", "--interpret", "--target", "sm_90", "--tokens", "x"),
            Exit.USAGE,
            "cannot read --tokens",
        ),
    ],
)
def test_what_cannot_be_verified_is_said(vcc, own_store, words, code, what):
    done = vcc(*words)
    assert done.code == code
    assert what in done.err


def test_cubins_run_on_later_architectures_of_their_major_number():
    from vcc.engine.verify import _runs

    assert _runs("sm_86", "sm_89")
    assert _runs("sm_120", "sm_120")
    assert not _runs("sm_89", "sm_86")
    assert not _runs("sm_80", "sm_90")
    assert not _runs("sm_90", "sm_100")
