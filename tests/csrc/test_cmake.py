"""The native build: what it makes, what it leaves out and says, and that it is reproducible."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[2] / "csrc"
RELEASE = ".".join(metadata.version("torch").split(".")[:2])
LIBRARIES = ["libvcc_abi.so", f"libvcc_guard-{RELEASE}.so", "libvcc_ops.so"]
WITHOUT_KERNELS = "-DVCC_KERNELS=OFF"
"""The CUDA kernels have tests of their own: tests/csrc/kernels."""

X86 = platform.machine() in ("x86_64", "AMD64")


def _tool(name: str) -> str:
    """A tool of the environment that runs the tests, else of the system."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def _run(*command: str, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, **(env or {})},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _configure(
    source: Path, build: Path, *options: str, env: Mapping[str, str] | None = None
) -> str:
    """Returns what configure said."""
    generator = ("-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={_tool('ninja')}")
    python = f"-DPython_EXECUTABLE={sys.executable}"
    place = ("-S", str(source), "-B", str(build))
    return _run(_tool("cmake"), *place, *generator, python, *options, env=env)


def _build(
    source: Path,
    build: Path,
    *options: str,
    out: str = "out",
    env: Mapping[str, str] | None = None,
) -> str:
    """Configure, build and install into build/out; returns what configure said."""
    said = _configure(source, build, *options, env=env)
    _run(_tool("cmake"), "--build", str(build))
    _run(_tool("cmake"), "--install", str(build), "--prefix", str(build / out))
    return said


def _installed(build: Path, out: str = "out") -> list[str]:
    return sorted(path.name for path in (build / out).rglob("*.so"))


def _declared_functions() -> set[str]:
    """What the headers declare with VCC_API."""
    headers = "\n".join(path.read_text() for path in sorted(CSRC.rglob("*.h")))
    return set(re.findall(r"^VCC_API [^;(]*?(\w+)\(", headers, re.MULTILINE))


def _needs_compiler() -> None:
    if not (shutil.which("c++") or shutil.which("g++")):
        pytest.skip("no C++ compiler")


WERROR = "-DCMAKE_CXX_FLAGS=-Werror"


@dataclass(frozen=True)
class Plain:
    """A build without torch: where, what configure said, what was installed."""

    build: Path
    said: str
    installed: list[str]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    """The first half of the full build, so that nothing is compiled twice for these tests."""
    _needs_compiler()
    build = tmp_path_factory.mktemp("built") / "build"
    said = _build(CSRC, build, WERROR, "-DVCC_TORCH_DIR=/nonexistent", out="plain")
    return Plain(build, said, _installed(build, "plain"))


@pytest.fixture(scope="module")
def built(plain: Plain) -> Path:
    """One full build, shared: it takes 100 s of a core."""
    _build(CSRC, plain.build, WERROR, "-UVCC_TORCH_DIR")
    return plain.build


def test_without_a_compiler_the_install_works_and_says_once_what_is_missing(tmp_path: Path) -> None:
    said = _build(CSRC, tmp_path, env={"CXX": "/nonexistent/c++"})
    assert said.count("no C++ compiler found") == 1
    assert "Install g++ or clang++" in " ".join(said.split())
    assert _installed(tmp_path) == []


def test_without_torch_only_the_plain_library_is_built(plain: Plain) -> None:
    assert plain.said.count("no torch headers seen by") == 1
    assert plain.installed == ["libvcc_abi.so"]


STATIC_ONLY = """#!/bin/sh
case "$*" in *-print-file-name=libstdc++.so*) echo libstdc++.so; exit;; esac
exec c++ -static-libstdc++ "$@"
"""


def test_a_toolchain_with_a_static_cxx_library_only_is_given_the_shared_one(tmp_path: Path) -> None:
    """torch must be able to catch what the operators throw."""
    _needs_compiler()
    compiler = tmp_path / "static-c++"
    compiler.write_text(STATIC_ONLY)
    compiler.chmod(0o755)
    _configure(CSRC, tmp_path / "b", env={"CXX": str(compiler)})
    rules = (tmp_path / "b" / "build.ninja").read_text()
    (link,) = re.findall(r"build libvcc_ops\.so:.*?\n\n", rules, re.DOTALL)
    assert "libstdc++.so.6" in link


def test_an_editable_build_writes_the_link_view(tmp_path: Path) -> None:
    shutil.copytree(CSRC, tmp_path / "csrc")
    _build(
        tmp_path / "csrc",
        tmp_path / "b",
        "-DSKBUILD_STATE=editable",
        env={"CXX": "/nonexistent/c++"},
    )
    view = tmp_path / "build" / "view" / "vcc"
    assert os.readlink(view / "engine") == "../../../engine"
    assert "__version__: str\n" in (view / "__init__.pyi").read_text()


def test_all_libraries_are_built_without_a_warning(built: Path) -> None:
    assert _installed(built) == LIBRARIES


@pytest.mark.parametrize(
    ("library", "wanted"), [("libvcc_ops.so", "libtorch.so"), (LIBRARIES[1], "libc10.so")]
)
def test_torch_is_linked_by_soname_without_a_path(built: Path, library: str, wanted: str) -> None:
    dynamic = _run(_tool("readelf"), "-d", str(next(built.rglob(f"out/**/{library}"))))
    needed = re.findall(r"NEEDED.*\[(.*)\]", dynamic)
    assert wanted in needed
    assert "libstdc++.so.6" in needed, "torch could not catch what the operators throw"
    assert not [name for name in needed if "/" in name or "python" in name]
    assert "RPATH" not in dynamic
    assert "RUNPATH" not in dynamic


def test_only_the_named_functions_are_exported(built: Path) -> None:
    for name, exported in (
        ("libvcc_abi.so", _declared_functions()),
        ("libvcc_ops.so", {"vcc_ops_use_level"}),
    ):
        table = _run(_tool("nm"), "-D", "--defined-only", str(built / name))
        own = {line.split()[-1] for line in table.splitlines() if "vcc" in line}
        assert own == exported


@pytest.mark.skipif(not X86, reason="x86-64 variants")
def test_wide_registers_stay_inside_the_variants_that_may_use_them(built: Path) -> None:
    """AVX-512 only in namespaces of v4, AVX only there and in v3: variants share nothing."""
    code = _run(_tool("objdump"), "-d", "--no-show-raw-insn", "-C", str(built / "libvcc_ops.so"))
    wide: dict[str, set[str]] = {"zmm": set(), "ymm": set()}
    name = ""
    for line in code.splitlines():
        header = re.match(r"[0-9a-f]+ <(.*)>:$", line)
        name = header[1] if header else name
        for register, users in wide.items():
            if f"%{register}" in line:
                users.add(name)
    assert wide["zmm"]
    assert not {user for user in wide["zmm"] if not re.search(r"\bv4(pairs)?::", user)}
    assert not {user for user in wide["ymm"] if not re.search(r"\bv(3|4|4pairs)::", user)}


def test_no_library_holds_the_name_of_a_folder(built: Path) -> None:
    """What a compiler may write into its output: of sources, of the build, of torch."""
    torch = Path(str(metadata.distribution("torch").locate_file("torch")))
    for name in LIBRARIES:
        data = (built / name).read_bytes()
        for folder in (CSRC, built, torch):
            assert os.fsencode(folder) not in data, (name, folder)


def test_files_of_every_target_are_the_same_in_another_folder(built: Path, tmp_path: Path) -> None:
    """One of each, as flags are by target; all of them in the long form."""
    copy, other = tmp_path / "elsewhere" / "csrc", tmp_path / "other build"
    shutil.copytree(CSRC, copy)
    _configure(copy, other, WERROR)
    names = _one_object_of_each_target(built)
    assert len(names) >= (6 if X86 else 4)
    _run(_tool("ninja"), "-C", str(other), *names)
    for name in names:
        assert (built / name).read_bytes() == (other / name).read_bytes(), name


def _one_object_of_each_target(build: Path) -> list[str]:
    """The objects of the smallest sources, which are built soonest."""
    smallest: dict[str, Path] = {}
    for path in sorted((build / "CMakeFiles").glob("*.dir/**/*.o"), key=_size):
        smallest.setdefault(path.relative_to(build).parts[1], path)
    return [str(path.relative_to(build)) for path in smallest.values()]


def _size(path: Path) -> int:
    return path.stat().st_size


@pytest.mark.slow
def test_a_build_in_another_folder_gives_the_same_bytes(built: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "csrc"
    shutil.copytree(CSRC, copy)
    _build(copy, tmp_path / "other build", WERROR)
    for name in LIBRARIES:
        assert (built / name).read_bytes() == (tmp_path / "other build" / name).read_bytes()


def test_sources_are_formatted() -> None:
    sources = [str(path) for path in sorted(CSRC.rglob("*")) if path.suffix in (".h", ".cpp")]
    assert sources
    _run(_tool("clang-format"), "--dry-run", "-Werror", *sources)
