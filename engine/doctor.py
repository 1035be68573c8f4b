"""doctor: what of this machine vcc can use, what is missing, and what to do about it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from vcc.cache.errors import DeviceError, VccError
from vcc.cache.store import Store
from vcc.engine.compile.toolchain import find_compiler
from vcc.engine.config.environment import read_environment
from vcc.engine.devices import Device, devices
from vcc.engine.doctor_store import store_findings
from vcc.engine.findings import Finding
from vcc.engine.native import abi, library
from vcc.engine.ops.cuda import cubins
from vcc.engine.torch_shim.profiles import PROFILES
from vcc.engine.tune.libraries import CUBLASLT, CUPTI, INSTALL, candidates

TORCH = ((2, 11), (2, 16))
"""Versions of torch that vcc is for: from the first up to, not including, the second."""


@dataclass(frozen=True, slots=True)
class Report:
    """All findings, and the devices."""

    findings: tuple[Finding, ...]
    devices: tuple[Device, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing failed; something absent is no failure."""
        return all(one.state != "failed" for one in self.findings)

    def as_dict(self) -> dict[str, object]:
        """The JSON of `--json`."""
        return {
            "healthy": self.healthy,
            "findings": [asdict(one) for one in self.findings],
            "devices": [asdict(one) for one in self.devices],
            "profiles": {name: profile.name for name, profile in PROFILES.items()},
        }


def examine(store: Store) -> Report:
    """Look at everything; nothing that is there is changed, and nothing here raises."""
    found, why = _devices()
    findings = [
        _versions(),
        _native("vcc_abi", "without it nothing of vcc runs on a GPU"),
        _native("vcc_ops", "operators run in plain torch"),
        _kernels(),
        _asked("C++ compiler", lambda: " ".join((find_compiler().name, find_compiler().version))),
        _torch(),
        _package("triton"),
        *store_findings(store),
        _driver(found, why),
        *(_device(one) for one in found),
        *(_library(name, names) for name, names in (("CUPTI", CUPTI), ("cuBLASLt", CUBLASLT))),
    ]
    return Report(tuple(findings), found)


def _devices() -> tuple[tuple[Device, ...], DeviceError | None]:
    try:
        return devices(), None
    except DeviceError as error:
        return (), error


def _versions() -> Finding:
    import vcc

    python = ".".join(map(str, sys.version_info[:3]))
    return Finding("vcc", "ok", f"{vcc.__version__}, Python {python}, {platform.machine()}")


def _asked(name: str, ask: Callable[[], str]) -> Finding:
    try:
        return Finding(name, "ok", ask())
    except VccError as error:
        return Finding(name, "absent", error.why or error.what, error.hint)


def _native(name: str, without: str) -> Finding:
    path = library(name)
    if path is None:
        hint = "install a C++ compiler and reinstall vcc"
        return Finding(f"lib{name}.so", "absent", f"not built; {without}", hint)
    if name == "vcc_abi":
        try:
            abi()
        except DeviceError as error:
            return Finding(f"lib{name}.so", "failed", str(error), error.hint)
    return Finding(f"lib{name}.so", "ok", str(path))


def _kernels() -> Finding:
    """The cubins of csrc/kernels: without them Triton's kernels or plain torch take their place."""
    why = cubins.missing()
    if why:
        return Finding("CUDA kernels", "absent", f"forward_cuda is not available: {why}")
    try:
        found = [cubins.index(arch) for arch in cubins.architectures()]
        for index in found:
            for op in index.cubins:
                cubins.read(index, op)
    except VccError as error:
        return Finding("CUDA kernels", "failed", f"{error.what}: {error.why}", error.hint)
    text = ", ".join(f"{one.arch} ({len(one.cubins)} operators)" for one in found)
    return Finding("CUDA kernels", "ok", f"{text}, nvcc {found[0].toolkit}")


def _torch() -> Finding:
    found = _package("torch")
    if found.state != "ok":
        return found
    numbers = found.what.split("+")[0].split(".")[:2]
    low, high = TORCH
    if not low <= tuple(map(int, numbers)) < high:
        wanted = f"{low[0]}.{low[1]} up to {high[0]}.{high[1] - 1}"
        return Finding("torch", "failed", found.what, f"vcc needs {wanted}")
    return found


def _package(name: str) -> Finding:
    try:
        return Finding(name, "ok", metadata.version(name))
    except metadata.PackageNotFoundError:
        return Finding(name, "absent", "not installed", f"pip install {name}")


def _driver(found: tuple[Device, ...], why: DeviceError | None) -> Finding:
    name = "CUDA driver"
    if why is not None:
        return Finding(name, "absent", str(why), why.hint)
    major, minor = divmod(found[0].driver, 1000)
    visible = found[0].visible
    shown = f", CUDA_VISIBLE_DEVICES={visible}" if visible else ""
    path = read_environment().libcuda
    return Finding(name, "ok", f"{path}, CUDA {major}.{minor // 10}, {len(found)} devices{shown}")


def _device(one: Device) -> Finding:
    slice = ", a MIG slice" if one.mig else ""
    memory = f"{one.free_memory / 1e9:.1f} of {one.memory / 1e9:.1f} GB free"
    what = f"{one.name}, {one.arch}, {one.numbers['multiprocessors']} multiprocessors, {memory}"
    name = f"device {one.ordinal}"
    if one.arch not in PROFILES:
        hint = "write its profile: vcc doctor --profile FILE, then build with --target-profile FILE"
        return Finding(name, "absent", f"{what}{slice}; no profile of {one.arch}", hint)
    return Finding(name, "ok", what + slice)


def _library(name: str, names: tuple[str, ...]) -> Finding:
    path = next(iter(_files(names)), None)
    if path is not None:
        return Finding(name, "ok", path)
    return Finding(name, "absent", "not found: nothing can be recorded or tuned", INSTALL[names])


def _files(names: tuple[str, ...]) -> Iterator[str]:
    """Candidates that are there; a bare name is looked for where the loader looks."""
    for one in candidates(names):
        if "/" in one and Path(one).is_file():
            yield one
        elif "/" not in one:
            yield from _known_to_loader(one)


def _known_to_loader(name: str) -> Iterator[str]:
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"):
        if (file := Path(folder) / name).exists():
            yield str(file)
