"""The one reader of environment variables in the engine, as one typed value."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vcc.cache.errors import ConfigError

from .checks import suggestion
from .compiler_variables import KEY_VARIABLES, UNTOLD, is_dropped
from .reads import Reads, recorded
from .spellings import LONGEST_NUMBER

LOG_LEVELS = ("debug", "info", "warning", "error")

_POOL = "VCC_USE_CUDA_MEMORY_POOL"

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


@dataclass(frozen=True, slots=True)
class Environment:
    """The variables the engine knows.

    Args:
        log_level: VCC_LOG_LEVEL, one of `LOG_LEVELS`.
        workers: VCC_WORKERS, compile processes; 0 leaves the number to the build.
        no_color: NO_COLOR, set and not empty.
        hf_home: HF_HOME, or the default place of Hugging Face data.
        hf_hub_cache: HF_HUB_CACHE, or `hub` in `hf_home`.
        hf_hub_offline: HF_HUB_OFFLINE, or TRANSFORMERS_OFFLINE: never use the network.
        hf_endpoint: HF_ENDPOINT, empty for the public hub.
        libcuda: VCC_LIBCUDA, the CUDA driver library; a name is searched as the linker does.
        cuda_home: CUDA_HOME or CUDA_PATH, where a CUDA toolkit lies; empty for the usual place.
        record_products: VCC_RECORD_PRODUCTS, 0 forbids recording beside a run (default 1).
        use_cuda_memory_pool: VCC_USE_CUDA_MEMORY_POOL, on unless set to 0: memory comes from the
            arena, else from plain allocations that cannot sleep.
        cxx: CXX, the C++ compiler; empty for the usual ones.
        key: the set variables of `KEY_VARIABLES`, for the code key; of a path, the last part, as
            keys hold no paths (the compiler's version is an entry of its own).
    """

    log_level: str
    workers: int
    no_color: bool
    hf_home: Path
    hf_hub_cache: Path
    hf_hub_offline: bool
    hf_endpoint: str
    libcuda: str
    cuda_home: str
    record_products: bool
    use_cuda_memory_pool: bool
    cxx: str
    key: tuple[tuple[str, str], ...]


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """Read the environment once.

    Args:
        variables: used instead of the process environment (tests).

    Raises:
        ConfigError: a value that cannot be read, with the variable's name.
    """
    env = os.environ if variables is None else variables
    home = _hf_home(env)
    return Environment(
        log_level=_log_level(env.get("VCC_LOG_LEVEL", "")),
        workers=_workers(env.get("VCC_WORKERS", "")),
        no_color=bool(env.get("NO_COLOR")),
        hf_home=home,
        hf_hub_cache=Path(env.get("HF_HUB_CACHE") or home / "hub").expanduser(),
        hf_hub_offline=_switch(env, "HF_HUB_OFFLINE") or _switch(env, "TRANSFORMERS_OFFLINE"),
        hf_endpoint=env.get("HF_ENDPOINT", ""),
        libcuda=env.get("VCC_LIBCUDA") or "libcuda.so.1",
        cuda_home=env.get("CUDA_HOME") or env.get("CUDA_PATH") or "",
        record_products="VCC_RECORD_PRODUCTS" not in env or _switch(env, "VCC_RECORD_PRODUCTS"),
        use_cuda_memory_pool=_switch({_POOL: "1", **env}, _POOL),
        cxx=env.get("CXX", ""),
        key=tuple((name, Path(env[name]).name) for name in KEY_VARIABLES if env.get(name)),
    )


def no_color() -> bool:
    """NO_COLOR for the console, which must not fail on the other variables."""
    return bool(os.environ.get("NO_COLOR"))


def guest_environment(folder: Path | None) -> tuple[dict[str, str], tuple[str, ...]]:
    """The environment of a program that `vcc run --` starts, and names whose values were replaced.

    Args:
        folder: private to the run, with `inductor/` and `triton/` in it; None changes nothing.
    """
    if folder is None:
        return dict(os.environ), ()
    places = {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }
    return {**os.environ, **places}, tuple(name for name in places if os.environ.get(name))


def github_summary() -> Path | None:
    """GITHUB_STEP_SUMMARY: the file that a runner of GitHub shows as a job's summary, if set."""
    named = os.environ.get("GITHUB_STEP_SUMMARY", "")
    return Path(named) if named else None


def without_optimisation() -> tuple[dict[str, str], bool]:
    """The environment of the same program with assertions, and whether that changes anything."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONOPTIMIZE"}
    return kept, len(kept) != len(os.environ)


def import_numpy() -> None:
    """Import numpy without the threads of its BLAS, which a run never calls: they start slowly.

    What the user says about them is kept, and what this process starts is told nothing.
    """
    name, said = "OPENBLAS_NUM_THREADS", os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ.setdefault(name, "1")
    try:
        import numpy  # noqa: F401
    finally:
        if said is None:
            del os.environ[name]


def recorder_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """All variables of a process that records: its C library hands out no block as it was freed.

    Of structures that are filled in part the rest is then what M_PERTURB says, which differs from
    one recording to the next, and not whatever was in the block before, which need not.
    """
    env = os.environ if variables is None else variables
    tunables = [one for one in (env.get(_TUNABLES), "glibc.malloc.tcache_count=0") if one]
    return {**env, _TUNABLES: ":".join(tunables)}


_TUNABLES = "GLIBC_TUNABLES"


def inductor_environment(scratch: Path, cpu_level: str = "x86-64-v3") -> dict[str, str]:
    """Variables of a compile process.

    Args:
        scratch: private folder of the build; Inductor's and Triton's own caches go there, so no
            build reads what another one left.
        cpu_level: instruction set the code is pinned to; the host's must not leak in.
    """
    pinned = {
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        # Kernels with source lines differ between folders.
        "TRITON_DISABLE_LINE_INFO": "1",
    }
    return {**pinned, **_CPU_PINS.get(cpu_level, {})}


_CPU_PINS: Mapping[str, Mapping[str, str]] = {
    level: {"TORCHINDUCTOR_CPP_MARCH": level, "ATEN_CPU_CAPABILITY": capability}
    for level, capability in (
        ("x86-64-v2", "default"),
        ("x86-64-v3", "avx2"),
        ("x86-64-v4", "avx512"),
    )
}


def inductor_names() -> frozenset[str]:
    """The variables that a build sets itself, for any CPU level."""
    return frozenset(inductor_environment(Path())).union(*_CPU_PINS.values())


def compile_environment(scratch: Path, cpu_level: str = "x86-64-v3") -> dict[str, str]:
    """The process environment with `inductor_environment` laid over it, for a child process.

    The user's own variables of Dynamo, Inductor and Triton are left out: none is in the key, so
    none may change code.
    """
    kept = {name: value for name, value in os.environ.items() if not is_dropped(name)}
    return kept | inductor_environment(scratch, cpu_level)


def interpreter_environment(scratch: Path) -> dict[str, str]:
    """The environment of a child process that runs Triton kernels on the CPU."""
    return compile_environment(scratch) | {"TRITON_INTERPRET": "1", "TMPDIR": str(scratch)}


def use_build_folder(scratch: Path, cpu_level: str = "x86-64-v3") -> None:
    """Give this process the environment of a build, in place, before Inductor is imported.

    A build process and its forked workers call it; the user's compiler variables are dropped.
    """
    wanted = compile_environment(scratch, cpu_level)
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)


@contextmanager
def kept_environment() -> Iterator[None]:
    """Give a program that builds in its own process its variables back, whatever the build set."""
    import tempfile

    before, folder = dict(os.environ), tempfile.tempdir
    try:
        yield
    finally:  # only what differs is touched: other threads, the driver's too, may be reading it
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        for name, value in before.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
        tempfile.tempdir = folder


def use_temporary_folder(folder: Path) -> None:
    """Put the temporary files of this process and of its children into a folder.

    A compiler that is killed leaves its own, and nobody else knows their names.
    """
    import tempfile  # takes 5 ms: not on the way of a warm boot

    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)


def drop_compiler_variables() -> tuple[str, ...]:
    """Take the user's compiler variables out of this process before torch is imported.

    Returns:
        Their names, sorted, less `UNTOLD` and those that an earlier build in this process set.
    """
    names = sorted(name for name in os.environ if is_dropped(name))
    ours = inductor_names()
    for name in names:
        del os.environ[name]
    return tuple(name for name in names if name not in ours and name not in UNTOLD)


@contextmanager
def recorded_reads() -> Iterator[Reads]:
    """What is read of the environment by others than vcc, until the body ends."""
    reads = Reads()
    with recorded(os.environ, reads):
        yield reads


def set_variables(names: Iterable[str]) -> tuple[str, ...]:
    """Those of the variables that are set."""
    return tuple(name for name in names if name in os.environ)


def _hf_home(env: Mapping[str, str]) -> Path:
    if env.get("HF_HOME"):
        return Path(env["HF_HOME"]).expanduser()
    base = env.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface"


def _log_level(text: str) -> str:
    level = text.strip().lower() or "warning"
    if level not in LOG_LEVELS:
        raise ConfigError(f'unknown VCC_LOG_LEVEL "{text}"', "", suggestion(level, LOG_LEVELS))
    return level


def _workers(text: str) -> int:
    plain = text.strip()
    number = plain.isascii() and plain.isdigit() and len(plain) <= LONGEST_NUMBER
    if plain and not number:
        raise ConfigError(
            f'cannot read VCC_WORKERS "{text}"',
            "it is not a whole number",
            "set it to the number of compile processes, or unset it",
        )
    return int(plain or "0")


def _switch(env: Mapping[str, str], name: str) -> bool:
    text = env.get(name, "").strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ConfigError(f'cannot read {name} "{env[name]}"', "", "set it to 1 or 0")
