"""The install's cubins: found by target, verified, and what is said where there are none."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from vcc.cache.errors import IntegrityError
from vcc.engine.ops.cuda import cubins

SYMBOL = {"threads": 512, "registers": 40, "shared": 128, "param_bytes": 64}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An install with one cubin."""
    place = tmp_path / "sm_90a"
    place.mkdir()
    (place / "rms_norm.cubin").write_bytes(b"code")
    entry = {"bytes": 4, "sha256": sha256(b"code").hexdigest(), "symbols": {"vcc_f": SYMBOL}}
    told = {"format": 1, "arch": "sm_90a", "toolkit": "13.0", "cubins": {"rms_norm": entry}}
    (place / "index.json").write_text(json.dumps(told))
    return tmp_path


def test_a_target_finds_the_cubins_for_its_features(root: Path) -> None:
    for target in ("sm_90", "sm_90a"):
        assert cubins.missing(target, root) == ""
        index = cubins.index(target, root)
        assert cubins.read(index, "rms_norm") == b"code"
        assert index.cubins["rms_norm"].symbols["vcc_f"].threads == 512
    assert index.driver == 13000
    assert cubins.version("sm_90", root).startswith("13.0 ")


def test_what_is_not_there_has_a_reason(root: Path, tmp_path: Path) -> None:
    assert "compiled for sm_90a here, not for sm_80" in cubins.missing("sm_80", root)
    assert "no nvcc was found when vcc was installed" in cubins.missing("", tmp_path / "none")
    with pytest.raises(IntegrityError, match="no CUDA kernels"):
        cubins.index("sm_80", root)


def test_other_bytes_are_refused(root: Path) -> None:
    (root / "sm_90a" / "rms_norm.cubin").write_bytes(b"evil")
    with pytest.raises(IntegrityError, match=r"rms_norm\.cubin") as caught:
        cubins.read(cubins.index("sm_90", root), "rms_norm")
    assert "SHA-256" in caught.value.why
    assert caught.value.hint == "reinstall vcc"


def test_a_cubin_that_is_gone_is_an_error_not_another_kernel(root: Path) -> None:
    index = cubins.index("sm_90", root)
    (root / "sm_90a" / "rms_norm.cubin").unlink()
    with pytest.raises(IntegrityError, match=r"rms_norm\.cubin"):
        cubins.read(index, "rms_norm")
    with pytest.raises(IntegrityError, match="index"):
        cubins.read(index, "silu_and_mul")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2, "arch": "sm_90a"}', "nonsense"])
def test_a_damaged_index_is_told(root: Path, text: str) -> None:
    (root / "sm_90a" / "index.json").write_text(text)
    with pytest.raises(IntegrityError, match=r"index\.json"):
        cubins.index("sm_90", root)
    assert cubins.version("sm_90", root) == "damaged"
