"""verify --run: all goldens hold, or the first that does not is named, on a device and a CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.fake_cuda import Fake
from support.fake_cuda.fixtures import fake
from support.golden_tables import copying
from support.step_tables import CUBIN, DIGEST, toy_step

from vcc.cache.errors import DeviceError, IntegrityError, UsageError
from vcc.cache.loaded import Loaded
from vcc.cache.manifest import Manifest
from vcc.engine.graphs.golden import Golden
from vcc.engine.runtime.player import device as devices
from vcc.engine.verify_run import OutOfGolden, run_goldens

__all__ = ["fake"]

A, B, C = "a" * 64, "b" * 64, "c" * 64


def artifact(
    goldens: dict[str, Golden], loader: str = "Player", arch: str = "sm_90", **blobs: bytes
) -> Loaded:
    """An artifact with these goldens, and a piece that has none."""
    manifest = Manifest(
        request=(("model", "toy"),),
        open_fields=(),
        code_key=(("a", "b"),),
        host_rules={"loader": loader, "arch": arch},
        title="toy",
        info={"goldens": {C: "it is too large"}},
    )
    content = {"table/step": toy_step().data, f"cubin/{DIGEST}": CUBIN, **blobs}
    content |= {f"golden/{name}": one.encode() for name, one in goldens.items()}
    return Loaded.of(manifest, content)


def wrong(golden: Golden) -> Golden:
    return replace(golden, references=(golden.references[0] + np.float32(1),))


@pytest.fixture
def double(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The device that is opened is the double."""
    monkeypatch.setenv("VCC_LIBCUDA", fake.path)
    devices._opened.cache_clear()
    yield
    devices._opened.cache_clear()


@pytest.mark.usefixtures("double")
def test_all_goldens_run_on_the_device() -> None:
    ran = run_goldens(artifact({A: copying(A), B: copying(B)}))
    assert ran.checked == (A, B)
    assert ran.without == {C: "it is too large"}
    assert ran.as_dict()["device"]


@pytest.mark.usefixtures("double")
def test_all_differences_are_counted_and_the_first_is_named() -> None:
    goldens = {A: copying(A), B: wrong(copying(B)), C: wrong(copying(C))}
    with pytest.raises(OutOfGolden, match=f"piece {B[:12]} computes something else") as caught:
        run_goldens(artifact(goldens))
    assert caught.value.exit == 1
    assert "2 of 3 goldens do not hold; output 0: error 1" in caught.value.why
    assert caught.value.hint.startswith("rebuild it: vcc compile toy --target sm_90")


@pytest.mark.usefixtures("double")
def test_damage_and_another_device_are_no_differences() -> None:
    with pytest.raises(IntegrityError, match="golden refused"):
        run_goldens(artifact({A: replace(copying(A), table=b"", strides=())}))
    with pytest.raises(DeviceError, match="is for sm_80"):
        run_goldens(artifact({A: copying(A)}, arch="sm_80"))


def test_without_goldens_no_device_is_asked_for() -> None:
    assert run_goldens(artifact({})).checked == ()


def test_an_artifact_without_pieces_has_nothing_to_run() -> None:
    with pytest.raises(UsageError, match="nothing to run"):
        run_goldens(artifact({A: copying(A)}, loader="EagerLoader"))


def copies(arguments: Sequence[torch.Tensor]) -> None:
    arguments[1].copy_(arguments[0])


@pytest.mark.parametrize("names", [(A,), (A, B)])
def test_pieces_of_a_cpu_run_here(monkeypatch: pytest.MonkeyPatch, names: Sequence[str]) -> None:
    opened: Callable[[object], Any] = lambda path: copies  # noqa: E731
    monkeypatch.setattr("vcc.engine.runtime.torch_loader.open_piece", opened)
    monkeypatch.setattr("vcc.engine.runtime.torch_loader.check_library", lambda name, data: None)
    goldens = {name: replace(copying(name), table=b"", strides=()) for name in names}
    blobs = {f"piece/{A}.so": b"library"}
    if names == (A,):
        assert run_goldens(artifact(goldens, "TorchLoader", **blobs)).checked == (A,)
        with pytest.raises(OutOfGolden):
            run_goldens(artifact({A: wrong(goldens[A])}, "TorchLoader", **blobs))
    else:
        with pytest.raises(IntegrityError, match=f"piece {B[:12]} is missing"):
            run_goldens(artifact(goldens, "TorchLoader", **blobs))
