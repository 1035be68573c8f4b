"""Fuzz one target with atheris: `python tests/cache/fuzz/fuzz.py manifest --seconds 600`.

The process has little memory and each input little time, so that neither can be eaten. What is new
is put beside the saved inputs with --save. libFuzzer's output goes to standard error.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FunctionType

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

MEMORY = 2 << 30
"""Bytes of address space that the process may have."""
MEGABYTES, LONGEST, INPUT_SECONDS = 1024, 8192, 10


def main() -> None:
    """Fuzz until time is up; exits 0, or as libFuzzer does on a fault."""
    asked = _arguments()
    import atheris
    import corpus
    import targets

    instrument(atheris.instrument_func)
    limit_memory()
    folder = Path(tempfile.mkdtemp(prefix="vcc-fuzz-"))
    corpus.unpack(asked.target, folder)
    if os.fork() == 0:  # libFuzzer ends its process itself
        _fuzz(atheris, targets, asked, folder)
    code = os.waitstatus_to_exitcode(os.wait()[1])
    if asked.save and code == 0:
        found = [path.read_bytes() for path in folder.iterdir()]
        corpus.save(asked.target, [*corpus.load(asked.target), *found])
    sys.exit(code if code >= 0 else 1)


def limit_memory() -> None:
    """From now on an input that wants too much fails with MemoryError, which is a fault."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def instrument(one: Callable[[FunctionType], object]) -> int:
    """Make all functions of `vcc.cache` tell what they ran; returns how many.

    The hook of atheris for imports knows ordinary loaders only, not that of an editable install.
    """
    count = 0
    for name, module in tuple(sys.modules.items()):
        holders = [module] if name.startswith("vcc.cache") else []
        holders += [o for h in holders for o in vars(h).values() if isinstance(o, type)]
        for found in [o for h in holders for o in vars(h).values()]:
            inner = getattr(found, "__func__", getattr(found, "fget", found))
            if isinstance(inner, FunctionType) and inner.__module__.startswith("vcc.cache"):
                one(inner)
                count += 1
    return count


def _fuzz(atheris, targets, asked: argparse.Namespace, folder: Path) -> None:
    options = [
        f"-max_total_time={asked.seconds}",
        f"-rss_limit_mb={MEGABYTES}",
        f"-max_len={LONGEST}",
        f"-timeout={INPUT_SECONDS}",
        f"-seed={asked.seed}",
        f"-artifact_prefix={asked.faults}/",
        "-print_final_stats=1",
    ]
    atheris.Setup(
        [sys.argv[0], *options, str(folder)], lambda data: targets.attempt(asked.target, data)
    )
    atheris.Fuzz()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", default=".", help="where inputs that fail are put")
    parser.add_argument("--save", action="store_true", help="keep what reached new code")
    return parser.parse_args()


if __name__ == "__main__":
    main()
