"""vcc doctor says what is here, what is missing and what to do; it writes a GPU's profile."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support import fake_cuda
from support.cli_reference import PAGE, differences, shapes

from vcc.cache.errors import Exit
from vcc.engine.torch_shim.profiles import PROFILES, read_profile

NONE = "/no/libcuda.so.1"


def doctor(*words: str, library: str = "", **settings: object):
    """The command in a process of its own, with the double as the driver."""
    named = {f"VCC_FAKE_{name.upper()}": str(value) for name, value in settings.items()}
    driver = {"VCC_LIBCUDA": library or str(fake_cuda.library())}
    environment = {**os.environ, **named, **driver}
    command = [sys.executable, "-m", "vcc.cli.main", "doctor", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def findings(done) -> dict[str, dict[str, str]]:
    return {one["name"]: one for one in json.loads(done.stdout)["findings"]}


def test_a_machine_without_a_gpu_is_healthy_and_told_what_to_do(own_store):
    done = doctor("--json", library=NONE)
    assert done.returncode == 0, done.stderr
    found = findings(done)
    assert found["CUDA driver"]["state"] == "absent"
    assert NONE in found["CUDA driver"]["what"]
    assert "install NVIDIA's driver" in found["CUDA driver"]["hint"]
    assert found["store"]["state"] == found["torch"]["state"] == found["triton"]["state"] == "ok"
    assert str(own_store) in found["store"]["what"]
    assert json.loads(done.stdout)["devices"] == []
    assert not own_store.exists()


def test_devices_are_told_with_what_the_driver_says():
    done = doctor("--json", devices=2, name="Fake H200", driver=12080, memory=3 << 30)
    found = findings(done)
    assert "CUDA 12.8, 2 devices" in found["CUDA driver"]["what"]
    assert "Fake H200, sm_90, 132 multiprocessors" in found["device 1"]["what"]
    assert [one["ordinal"] for one in json.loads(done.stdout)["devices"]] == [0, 1]
    shown = shapes(PAGE.read_text())["doctor"]
    assert differences(shown, json.loads(done.stdout)) == []


def test_a_slice_and_an_architecture_without_a_profile_are_said():
    text = doctor(name="Fake MIG 1g.18gb", capability=70).stdout
    assert "a MIG slice" in text
    assert "no profile of sm_70" in text
    assert "hint: device 0: write its profile: vcc doctor --profile FILE" in text
    for name in PROFILES:
        assert name in text


def test_the_profile_of_a_device_is_what_a_build_reads(tmp_path):
    file = tmp_path / "profile.json"
    done = doctor("--profile", str(file), name="Fake H200", memory=1 << 37)
    assert done.returncode == 0, done.stderr
    found = read_profile(file)
    assert (found.name, found.target, found.sm_count) == ("Fake H200", "sm_90", 132)
    assert found.total_memory == 1 << 37
    assert found.shared_per_block_optin == PROFILES["sm_90"].shared_per_block_optin
    assert doctor("--profile", "-", memory=1 << 37).stdout == file.read_text()


@pytest.mark.parametrize(
    ("words", "settings", "code", "what"),
    [
        (("--profile", "-"), {"library": NONE}, Exit.DEVICE, NONE),
        (("--profile", "-", "--device", "3"), {}, Exit.DEVICE, "CUDA device 3"),
        (("--profile", "/no/such/folder/file"), {}, Exit.STORAGE, "cannot write the profile"),
    ],
)
def test_a_profile_that_cannot_be_made_is_an_error(words, settings, code, what):
    done = doctor(*words, **settings)
    assert done.returncode == code
    assert what in done.stderr


def test_a_store_that_cannot_be_written_fails(vcc, tmp_path):
    file = tmp_path / "file"
    file.write_text("not a folder")
    done = vcc("doctor", "--cache-dir", str(file))
    assert done.code == Exit.NEGATIVE
    assert "failed" in done.out
    assert "hint: store:" in done.out


def test_a_torch_that_is_not_supported_fails(vcc, monkeypatch):
    from importlib import metadata

    from vcc.engine import doctor as module

    monkeypatch.setattr(module.metadata, "version", lambda name: "2.9.0+cpu")
    assert module._torch().state == "failed"
    assert "2.11 up to 2.15" in module._torch().hint

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(module.metadata, "version", missing)
    assert (module._torch().state, module._torch().hint) == ("absent", "pip install torch")


def test_looking_imports_no_torch(spawn, own_store):
    code = "import sys; from vcc.cli import main; main.run(['doctor'])\n"
    code += "sys.exit('torch' in sys.modules)"
    process = spawn(code=code)
    process.communicate()
    assert process.returncode == 0


def test_cubins_that_are_absent_or_damaged_are_told(vcc, monkeypatch, tmp_path):
    from hashlib import sha256

    from vcc.engine.ops.cuda import cubins

    def kernels() -> dict[str, str]:
        told = vcc("doctor", "--json").json["findings"]
        return next(one for one in told if one["name"] == "CUDA kernels")

    monkeypatch.setattr(cubins, "folder", lambda: None)
    assert kernels()["state"] == "absent"
    assert "forward_cuda is not available: no nvcc was found" in kernels()["what"]
    monkeypatch.setattr(cubins, "folder", lambda: tmp_path)
    place = tmp_path / "sm_90a"
    place.mkdir()
    entry = {"bytes": 4, "sha256": sha256(b"code").hexdigest(), "symbols": {}}
    told = {"format": 1, "arch": "sm_90a", "toolkit": "13.0", "cubins": {"rms_norm": entry}}
    (place / "index.json").write_text(json.dumps(told))
    (place / "rms_norm.cubin").write_bytes(b"code")
    assert kernels()["what"] == "sm_90a (1 operators), nvcc 13.0"
    (place / "rms_norm.cubin").write_bytes(b"evil")
    assert kernels()["state"] == "failed"
    assert kernels()["hint"] == "reinstall vcc"
