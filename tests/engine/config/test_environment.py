"""The engine's environment: typed, named in errors, and nothing unkeyed reaches a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vcc.cache.errors import ConfigError
from vcc.engine.config.environment import (
    compile_environment,
    inductor_environment,
    kept_environment,
    no_color,
    read_environment,
    recorder_environment,
)


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/user")
    found = read_environment({})
    assert (found.log_level, found.workers, found.no_color) == ("warning", 0, False)
    assert found.hf_home == Path("/home/user/.cache/huggingface")
    assert found.hf_hub_cache == found.hf_home / "hub"
    assert found.hf_hub_offline is False
    assert found.libcuda == "libcuda.so.1"
    assert found.key == ()


def test_hugging_face_places_follow_its_own_rules() -> None:
    assert read_environment({"HF_HOME": "/hf"}).hf_hub_cache == Path("/hf/hub")
    assert read_environment({"HF_HOME": "/hf", "HF_HUB_CACHE": "/c"}).hf_hub_cache == Path("/c")
    assert read_environment({"XDG_CACHE_HOME": "/x"}).hf_home == Path("/x/huggingface")
    assert read_environment({"HF_HUB_OFFLINE": "1"}).hf_hub_offline is True
    assert read_environment({"TRANSFORMERS_OFFLINE": "yes"}).hf_hub_offline is True


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("VCC_LOG_LEVEL", "inof", 'did you mean "info"'),
        ("VCC_WORKERS", "two", "number of compile processes"),
        ("VCC_WORKERS", "-1", "number of compile processes"),
        ("VCC_WORKERS", "9" * 5000, "number of compile processes"),
        ("HF_HUB_OFFLINE", "perhaps", "1 or 0"),
    ],
)
def test_bad_values_name_the_variable(name: str, value: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        read_environment({name: value})
    assert hint in caught.value.hint


def test_values_are_read() -> None:
    found = read_environment({"VCC_LOG_LEVEL": "DEBUG", "VCC_WORKERS": "3", "NO_COLOR": "1"})
    assert (found.log_level, found.workers, found.no_color) == ("debug", 3, True)
    assert read_environment({}).use_cuda_memory_pool
    assert not read_environment({"VCC_USE_CUDA_MEMORY_POOL": "0"}).use_cuda_memory_pool
    assert read_environment({"VCC_LIBCUDA": "/fake/libcuda.so.1"}).libcuda == "/fake/libcuda.so.1"


def test_a_toolkit_is_named_by_either_variable() -> None:
    assert read_environment({}).cuda_home == ""
    assert read_environment({"CUDA_PATH": "/b"}).cuda_home == "/b"
    assert read_environment({"CUDA_HOME": "/a", "CUDA_PATH": "/b"}).cuda_home == "/a"


def test_key_entries_hold_no_path() -> None:
    assert read_environment({"CXX": "/opt/bin/g++-12"}).key == (("CXX", "g++-12"),)


def test_no_color_does_not_depend_on_other_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCC_WORKERS", "bad")
    monkeypatch.setenv("NO_COLOR", "1")
    assert no_color() is True
    monkeypatch.setenv("NO_COLOR", "")
    assert no_color() is False


def test_a_compile_process_gets_private_caches_and_a_pinned_cpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    monkeypatch.setenv("TRITON_CACHE_DIR", "/elsewhere")
    monkeypatch.setenv("CXX", "g++")
    found = compile_environment(tmp_path)
    assert "TORCHINDUCTOR_MAX_AUTOTUNE" not in found
    assert found["TRITON_CACHE_DIR"] == str(tmp_path / "triton")
    assert found["CXX"] == "g++"
    assert found["TORCHINDUCTOR_CPP_MARCH"] == "x86-64-v3"
    assert found["ATEN_CPU_CAPABILITY"] == "avx2"
    assert "ATEN_CPU_CAPABILITY" not in inductor_environment(tmp_path, "aarch64")


def test_recording_beside_a_run_can_be_forbidden() -> None:
    assert read_environment({}).record_products
    assert not read_environment({"VCC_RECORD_PRODUCTS": "0"}).record_products
    with pytest.raises(ConfigError):
        read_environment({"VCC_RECORD_PRODUCTS": "perhaps"})


def test_a_recording_process_gets_its_tunable_beside_those_that_are_set() -> None:
    own = "glibc.malloc.tcache_count=0"
    assert recorder_environment({"A": "1"}) == {"A": "1", "GLIBC_TUNABLES": own}
    set_before = {"GLIBC_TUNABLES": "glibc.malloc.check=1"}
    assert recorder_environment(set_before)["GLIBC_TUNABLES"] == f"glibc.malloc.check=1:{own}"


def test_numpy_comes_without_the_threads_of_its_blas() -> None:
    code = (
        "import os, threading\n"
        "from vcc.engine.config.environment import import_numpy\n"
        "import_numpy()\n"
        "import numpy\n"
        "print(len(os.listdir('/proc/self/task')), os.environ.get('OPENBLAS_NUM_THREADS'))"
    )
    environment = {n: v for n, v in os.environ.items() if n != "OPENBLAS_NUM_THREADS"}
    for said, left in ((None, "None"), ("2", "2")):
        given = environment if said is None else environment | {"OPENBLAS_NUM_THREADS": said}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, env=given, check=True)
        threads, kept = done.stdout.split()
        assert kept == left
        assert said is not None or threads == "1"


def test_variables_are_given_back_and_those_that_nobody_changed_are_never_touched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that reads a variable meanwhile must find it: getenv beside setenv can crash."""
    for name in ("VCC_TEST_KEPT", "VCC_TEST_CHANGED", "VCC_TEST_REMOVED"):
        monkeypatch.setenv(name, "before")
    monkeypatch.delenv("VCC_TEST_NEW", raising=False)
    before, touched = dict(os.environ), []
    real_put, real_remove = os.putenv, os.unsetenv
    monkeypatch.setattr("os.putenv", lambda k, v: (touched.append(k), real_put(k, v)))
    monkeypatch.setattr("os.unsetenv", lambda k: (touched.append(k), real_remove(k)))
    with kept_environment():
        os.environ["VCC_TEST_CHANGED"] = os.environ["VCC_TEST_NEW"] = "after"
        del os.environ["VCC_TEST_REMOVED"]
        touched.clear()
    assert dict(os.environ) == before
    assert sorted(touched) == [b"VCC_TEST_CHANGED", b"VCC_TEST_NEW", b"VCC_TEST_REMOVED"]
