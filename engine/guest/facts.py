"""What an interpreter has installed, said by itself: a script of the standard library alone.

The guest's Python may be another one than vcc's, of another version and without vcc in it.
"""

from __future__ import annotations

import json
import platform
import re
import sys
import sysconfig
from importlib import metadata, util

PACKAGES = ("torch", "triton", "vllm", "transformers")
LIBRARIES = ("cublas", "cudnn", "nccl")


def facts() -> dict[str, str]:
    """Label to text: the interpreter, packages that make or run code, CUDA, its libraries."""
    abi = sysconfig.get_config_var("SOABI") or "none"
    found = {
        "python": f"{platform.python_implementation()} {platform.python_version()} {abi}",
        "libc": " ".join(platform.libc_ver()).strip() or "none",
    }
    for name in PACKAGES:
        found[name] = _version(name)
    found["cuda"] = _cuda()
    major = found["cuda"].partition(".")[0]
    for name in LIBRARIES:
        versions = (_version(f"nvidia-{name}-cu{major}"), _version(f"nvidia-{name}"))
        found[name] = next((one for one in versions if one != "none"), "none")
    return found


def _version(name: str) -> str:
    try:
        return metadata.version(name) or "none"
    except metadata.PackageNotFoundError:
        return "none"


def _cuda() -> str:
    """What torch/version.py says, read and not run."""
    try:
        spec = util.find_spec("torch")
        origin = spec.origin if spec is not None else None
        with open(str(origin).replace("__init__.py", "version.py"), encoding="utf-8") as stream:
            match = re.search(r"^cuda\s*(?::[^=\n]*)?=\s*'([^']*)'", stream.read(), re.MULTILINE)
    except (OSError, ValueError, ImportError):
        match = None
    return match[1] if match else "none"


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="ascii") as answer:
        json.dump(facts(), answer)
