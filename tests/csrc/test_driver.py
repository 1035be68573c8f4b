"""Opening the driver and a device: what is told, what is refused, and with which words."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
from support.fake_cuda import Fake
from support.fake_cuda.fixtures import DEVICE

from vcc.cache.errors import DeviceError, UsageError
from vcc.engine.config.target import OLDEST_DRIVER

CSRC = Path(__file__).parents[2] / "csrc"
OPEN = """
import json, sys
from vcc.cache.errors import VccError
from vcc.engine import native
from vcc.engine.config.environment import read_environment
F = native.functions({"vcc_device_open": "str i32 -> ptr", "vcc_device_info": "ptr -> str"})
try:
    device = F.vcc_device_open(read_environment().libcuda, int(sys.argv[1]))
    print(F.vcc_device_info(device))
except VccError as error:
    print(json.dumps(error.as_dict()))
"""


def opened(
    fake: Fake, ordinal: int = 0, library: str = "", **settings: object
) -> dict[str, object]:
    """Open a device in a child process; its info, or the error."""
    environment = {**os.environ, **fake.environment(**settings)}
    environment |= {"VCC_LIBCUDA": library} if library else {}
    visible = settings.pop("visible", None)
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = str(visible)
    command = [sys.executable, "-c", OPEN, str(ordinal)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_what_a_device_is(fake: Fake) -> None:
    info = opened(fake, memory=3 << 30, capability=80, driver=12080, name='a "quoted" name')
    assert info["name"] == 'a "quoted" name'
    assert (info["arch"], info["driver"], info["memory"]) == ("sm_80", 12080, 3 << 30)
    assert (info["multiprocessors"], info["shared_per_block_optin"]) == (132, 232448)
    assert info["uuid"] == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert info["mig"] is False


def test_a_slice_of_a_device_is_noted(fake: Fake) -> None:
    info = opened(fake, name="NVIDIA H200 MIG 1g.18gb", visible="MIG-1234")
    assert info["mig"] is True
    assert info["visible_devices"] == "MIG-1234"


def test_no_driver(fake: Fake) -> None:
    error = opened(fake, library="/nonexistent/libcuda.so.1")
    assert (error["id"], error["exit"]) == ("DEVICE", 3)
    assert "cannot use the CUDA driver library /nonexistent/libcuda.so.1" in str(error["what"])
    assert "VCC_LIBCUDA" in str(error["hint"])


def test_a_driver_that_lacks_a_function_is_told_by_its_name(fake: Fake, tmp_path: Path) -> None:
    """The double without its graph functions stands for an old driver."""
    compiler = shutil.which("g++") or pytest.skip("no C++ compiler")
    (tmp_path / "old.c").write_text(
        "int cuDriverGetVersion(int* v) { *v = 11080; return 0; }\nint cuInit(unsigned f);\n"
        "int cuInit(unsigned f) { return (int)f; }\n"
    )
    made = tmp_path / "libcuda.so.1"
    command = (compiler, "-x", "c", "-shared", "-fPIC", str(tmp_path / "old.c"), "-o", str(made))
    subprocess.run(command, check=True)
    error = opened(fake, library=str(made))
    assert error["why"] == "it lacks cuGetErrorName (this one is of CUDA 11.8)"
    assert error["hint"] == "install a driver of CUDA 12.4 or later"


def test_builds_and_the_player_mean_the_same_oldest_driver() -> None:
    """A host rule that an older driver met would be refused by the player all the same."""
    table = (CSRC / "driver" / "functions.h").read_text()
    since = [int(found) for found in re.findall(r"X\(\w+, \w+, (\d+),", table)]
    assert len(since) > 60
    assert max(since) == OLDEST_DRIVER


def test_no_device(fake: Fake) -> None:
    error = opened(fake, devices=0)
    assert "CUDA_ERROR_NO_DEVICE" in str(error["why"])
    assert "CUDA_VISIBLE_DEVICES" in str(error["hint"])


def test_a_number_beyond_the_devices(fake: Fake) -> None:
    error = opened(fake, ordinal=2, devices=2, visible="0,3")
    assert error["what"] == "cannot use CUDA device 2"
    assert error["why"] == "this process sees 2 (CUDA_VISIBLE_DEVICES=0,3)"


def test_a_closed_handle_is_refused(fake: Fake, device: int) -> None:
    with pytest.raises(UsageError, match="no such device"):
        DEVICE.vcc_device_info(device + 1000)


def test_another_driver_in_one_process_is_refused(fake: Fake, device: int) -> None:
    with pytest.raises(UsageError, match=r"uses .* already"):
        DEVICE.vcc_device_open("/other/libcuda.so.1", 0)


def test_a_call_that_fails_is_named_with_its_place(fake: Fake, device: int) -> None:
    fake.fail("cuMemGetInfo", code=1)
    with pytest.raises(DeviceError, match=r"CUDA call cuMemGetInfo failed") as caught:
        DEVICE.vcc_device_info(device)
    assert "CUDA_ERROR_INVALID_VALUE (1) at csrc/driver/device.cpp:" in caught.value.why
    json.loads(DEVICE.vcc_device_info(device))


def test_after_a_sticky_error_nothing_is_sent_any_more(fake: Fake, device: int) -> None:
    fake.fail("cuCtxSynchronize", code=700)
    with pytest.raises(DeviceError, match="cuCtxSynchronize failed") as caught:
        DEVICE.vcc_device_synchronize(device)
    assert "start a new process" in caught.value.hint
    before = fake.count()
    with pytest.raises(DeviceError, match=r"the CUDA device is lost: cuCtxSynchronize: .*ILLEGAL"):
        DEVICE.vcc_device_info(device)
    assert fake.count() == before


def test_a_forked_child_is_refused(fake: Fake, device: int) -> None:
    child = os.fork()
    if child == 0:
        try:
            DEVICE.vcc_device_info(device)
        except DeviceError as error:
            os._exit(7 if "forked" in error.why else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_child_of_a_process_that_used_the_driver_cannot_open_a_device(
    fake: Fake, device: int
) -> None:
    child = os.fork()
    if child == 0:
        try:
            DEVICE.vcc_device_open(fake.path, 0)
        except DeviceError as error:
            os._exit(7 if "forked" in error.why else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


SAME = """
#include <cuda.h>
#include "driver/driver.h"
template <class T> struct Shape;
template <class R, class... A> struct Shape<R (*)(A...)> {
  static constexpr unsigned count = sizeof...(A);
  static constexpr unsigned size[] = {0, (unsigned)(sizeof(A) + 100 * std::is_pointer_v<A>)...};
};
template <class A, class B> constexpr bool same() {
  if (Shape<A>::count != Shape<B>::count) return false;
  for (unsigned i = 0; i <= Shape<A>::count; ++i)
    if (Shape<A>::size[i] != Shape<B>::size[i]) return false;
  return true;
}
#define CHECK(member, symbol, since, arguments) \\
  static_assert(same<decltype(&::symbol), decltype(vcc::Driver::member)>(), #symbol);
VCC_CUDA_FUNCTIONS(CHECK)
#define SIZE(T) static_assert(sizeof(::T) == sizeof(vcc::T), #T)
SIZE(CUDA_KERNEL_NODE_PARAMS); SIZE(CUDA_MEMSET_NODE_PARAMS); SIZE(CUDA_MEMCPY3D);
SIZE(CUgraphEdgeData); SIZE(CUlaunchAttribute); SIZE(CUlaunchConfig); SIZE(CUmemAllocationProp);
SIZE(CUmemAccessDesc); SIZE(CUuuid);
"""


def test_our_declarations_are_those_of_nvidias_header(tmp_path: Path) -> None:
    """triton brings a cuda.h: argument counts, sizes and every constant are compared."""
    compiler = shutil.which("g++") or pytest.skip("no C++ compiler")
    spec = find_spec("triton")
    root = Path(spec.origin).parent if spec and spec.origin else Path("/")
    include = root / "backends" / "nvidia" / "include"
    if not (include / "cuda.h").exists():
        pytest.skip("this triton brings no cuda.h")
    types = (CSRC / "driver" / "cuda_types.h").read_text().split()
    names = [n for n, e in pairwise(types) if e == "=" and n.startswith("CU")]
    equal = [f'static_assert((long)::{n} == (long)vcc::{n}, "{n}");' for n in names if n.isupper()]
    assert len(equal) > 50
    (tmp_path / "same.cpp").write_text(SAME + "\n".join(equal))
    flags = ("-std=c++20", "-fsyntax-only", f"-I{include}", f"-I{CSRC}")
    command = [compiler, *flags, str(tmp_path / "same.cpp")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
