"""The native build: what it makes, what it leaves out and says, and that it is reproducible."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[2] / "csrc"
RELEASE = ".".join(metadata.version("torch").split(".")[:2])
LIBRARIES = ["libvcc_abi.so", f"libvcc_guard-{RELEASE}.so", "libvcc_ops.so"]
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


def _build(source: Path, build: Path, *options: str, env: Mapping[str, str] | None = None) -> str:
    """Configure, build and install into build/out; returns what configure said."""
    generator = ("-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={_tool('ninja')}")
    python = f"-DPython_EXECUTABLE={sys.executable}"
    cmake = _tool("cmake")
    said = _run(cmake, "-S", str(source), "-B", str(build), *generator, python, *options, env=env)
    _run(cmake, "--build", str(build))
    _run(cmake, "--install", str(build), "--prefix", str(build / "out"))
    return said


def _installed(build: Path) -> list[str]:
    return sorted(path.name for path in (build / "out").rglob("*.so"))


def _declared_functions() -> set[str]:
    """What the headers declare with VCC_API."""
    headers = "\n".join(path.read_text() for path in sorted(CSRC.rglob("*.h")))
    return set(re.findall(r"^VCC_API [^;(]*?(\w+)\(", headers, re.MULTILINE))


def _needs_compiler() -> None:
    if not (shutil.which("c++") or shutil.which("g++")):
        pytest.skip("no C++ compiler")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One full build, shared: it takes 10 s of a core."""
    _needs_compiler()
    build = tmp_path_factory.mktemp("built") / "build"
    _build(CSRC, build, "-DCMAKE_CXX_FLAGS=-Werror")
    return build


def test_without_a_compiler_the_install_works_and_says_once_what_is_missing(tmp_path: Path) -> None:
    said = _build(CSRC, tmp_path, env={"CXX": "/nonexistent/c++"})
    assert said.count("no C++ compiler found") == 1
    assert "Install g++ or clang++" in " ".join(said.split())
    assert _installed(tmp_path) == []


def test_without_torch_only_the_plain_library_is_built(tmp_path: Path) -> None:
    _needs_compiler()
    said = _build(CSRC, tmp_path, "-DVCC_TORCH_DIR=/nonexistent")
    assert said.count("no torch headers seen by") == 1
    assert _installed(tmp_path) == ["libvcc_abi.so"]


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
    generator = ("-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={_tool('ninja')}")
    python = f"-DPython_EXECUTABLE={sys.executable}"
    place = ("-S", str(CSRC), "-B", str(tmp_path / "b"))
    _run(_tool("cmake"), *place, *generator, python, env={"CXX": str(compiler)})
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
    """AVX-512 only in namespace v4, AVX only in v3 and v4: nothing is shared between variants."""
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
    assert not {user for user in wide["zmm"] if "v4::" not in user}
    assert not {user for user in wide["ymm"] if "v4::" not in user and "v3::" not in user}


def test_a_build_in_another_folder_gives_the_same_bytes(built: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "csrc"
    shutil.copytree(CSRC, copy)
    _build(copy, tmp_path / "other build", "-DCMAKE_CXX_FLAGS=-Werror")
    for name in LIBRARIES:
        assert (built / name).read_bytes() == (tmp_path / "other build" / name).read_bytes()


def test_sources_are_formatted() -> None:
    sources = [str(path) for path in sorted(CSRC.rglob("*")) if path.suffix in (".h", ".cpp")]
    assert sources
    _run(_tool("clang-format"), "--dry-run", "-Werror", *sources)
