"""The request of a guest's caches: who makes and runs code, on which machine, for which name.

What lies in the caches has keys of torch's and Triton's own, so that this request decides what is
worth looking into, and what must not be loaded: code of another CPU, libc or Python.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vcc.cache.digest import Digest
from vcc.cache.errors import DeviceError
from vcc.cache.key import Key, cleaned
from vcc.engine.compile.toolchain import find_compiler
from vcc.engine.config.environment import read_environment
from vcc.engine.guest import facts as facts_module
from vcc.engine.guest.command import Command
from vcc.engine.runtime.host import best_cpu_level, cpu_flags

SECONDS = 60.0
"""For an interpreter to say what it has."""

SCRIPT = "guest.script"
KIND = "guest.kind"
FORMAT = "inductor and triton caches 1"

_GPU_NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")
_ASK_GPUS = """
import json
from vcc.engine.devices import devices
found = devices()
print(json.dumps([sorted({one.arch for one in found}), found[0].driver]))
"""


@dataclass(frozen=True, slots=True)
class Identity:
    """What is looked for.

    Attributes:
        fields: all fields of the request; all but the script's digest are stated.
    """

    fields: Mapping[str, str]

    @property
    def base(self) -> Key:
        """The part that every look-up states."""
        return Key.of({label: text for label, text in self.fields.items() if label != SCRIPT})

    @property
    def script(self) -> str:
        """Digest of the script; artifacts of the same one come first."""
        return self.fields[SCRIPT]


def identity_of(command: Command, name: str | None) -> Identity:
    """The request of a command on this machine.

    Args:
        command: which.
        name: the user's label; None takes the name of the script.

    Raises:
        DeviceError: the interpreter does not say what it has.
    """
    said = {label: cleaned(text) for label, text in _facts(command.interpreter).items()}
    versions = {
        f"version.{label}": text for label, text in said.items() if label not in ("python", "libc")
    }
    fields = {
        KIND: FORMAT,
        "guest.name": _text(name or command.name),
        SCRIPT: command.script,
        "guest.python": said["python"],
        "host.machine": platform.machine(),
        "host.libc": said["libc"],
        "host.cpu": _cpu(),
        "compiler": _compiler(),
        **versions,
        **_gpus(),
    }
    return Identity(fields)


def _text(name: str) -> str:
    """A name as a key takes it: no path, clean."""
    return cleaned(name).replace("/", "_").replace("\\", "_").replace("~", "_")[:200]


def _facts(interpreter: str) -> Mapping[str, str]:
    if interpreter == sys.executable:
        return facts_module.facts()
    words = [interpreter, str(Path(facts_module.__file__).resolve())]
    try:
        # A file, because what else such a Python prints at its start is not ours to know.
        with tempfile.NamedTemporaryFile() as answer:
            subprocess.run(
                [*words, answer.name],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SECONDS,
                check=True,
            )
            found = json.load(answer)
        return {label: str(found[label]) for label in facts_module.facts()}
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        said = getattr(error, "stderr", None) or str(error).encode()
        raise DeviceError(
            f"{interpreter} does not say which torch it has",
            said.decode("utf-8", "replace").strip()[-300:],
            "run the program without vcc to see what is wrong with its Python",
        ) from error


def _cpu() -> str:
    """Inductor compiles for the very CPU it runs on: every flag counts."""
    flags = Digest.of(" ".join(sorted(cpu_flags())).encode()).short
    return f"{best_cpu_level()} {flags}"


def _compiler() -> str:
    try:
        found = find_compiler()
    except DeviceError:
        return "none"
    return f"{found.name} {found.version}"


def _gpus() -> dict[str, str]:
    """Architectures and driver; asked by a process of its own, which keeps nothing of a GPU."""
    none = {"host.gpus": "none", "host.driver": "none"}
    named = read_environment().libcuda != "libcuda.so.1"
    if not named and not any(os.path.exists(node) for node in _GPU_NODES):
        return none
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK_GPUS],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=True,
        )
        archs, driver = json.loads(done.stdout)
        return {"host.gpus": ",".join(archs), "host.driver": str(driver)}
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        return none  # no device, or none that can be used: the guest will say so itself
