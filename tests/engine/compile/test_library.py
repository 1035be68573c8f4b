"""What a build makes: reproducible, pinned to the CPU level, safe to load, and right."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from vcc.cache.loaded import Loaded
from vcc.engine.graphs.golden import Golden
from vcc.engine.torch_shim.aoti_runner import open_piece

ALLOWED = re.compile(
    r"lib(torch|torch_cpu|c10|gomp|stdc\+\+|gcc_s|m|c)\.so(\.\d+)?|ld-linux-x86-64\.so\.2"
)


@pytest.fixture(scope="session")
def library(builds: tuple[Loaded, Loaded], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The only piece of the module as a file."""
    (name,) = [name for name in builds[0].manifest.blobs if name.endswith(".so")]
    path = tmp_path_factory.mktemp("library") / "piece.so"
    path.write_bytes(builds[0].read(name))
    return path


def said_by(tool: str, *words: str) -> str:
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    return subprocess.run([tool, *words], capture_output=True, text=True, check=True).stdout


def test_two_builds_in_different_folders_are_equal_byte_for_byte(
    builds: tuple[Loaded, Loaded],
) -> None:
    """Every blob, so also golden and program; and both keys. Only time stamps differ.

    Home, account, log level, device index, temporary folder, place of the checkout, hash seed and
    the user's own compiler variables are different.
    """
    one, two = (loaded.manifest for loaded in builds)
    assert {n: str(b.sha256) for n, b in one.blobs.items()} == {
        n: str(b.sha256) for n, b in two.blobs.items()
    }
    assert (one.request, one.code_key, one.plan_key) == (two.request, two.code_key, two.plan_key)
    kinds = {name.partition("/")[0] for name in one.blobs}
    assert kinds == {"program", "piece", "golden", "constant"}


def test_no_path_of_the_build_is_in_the_library(library: Path) -> None:
    data = library.read_bytes()
    assert b"vcc-build-" not in data
    assert b"/home/" not in data
    assert b"builds" not in data


def test_no_instruction_is_above_the_level(library: Path) -> None:
    """x86-64-v3 has 256-bit registers; a 512-bit one or a mask register would be the host's."""
    code = said_by("objdump", "--disassemble", "--no-show-raw-insn", str(library))
    assert "%ymm" in code, "the level's own registers are used"
    assert "%zmm" not in code
    assert not re.search(r"%k[1-7]\b", code)
    assert not re.search(r"%[xy]mm(1[6-9]|2\d|3[01])\b", code)


def test_the_library_needs_what_the_loader_has_and_nothing_else(library: Path) -> None:
    dynamic = said_by("readelf", "--dynamic", "--wide", str(library))
    needed = re.findall(r"\(NEEDED\).*\[(.+?)\]", dynamic)
    assert needed
    assert [name for name in needed if not ALLOWED.fullmatch(name)] == []
    assert "RPATH" not in dynamic
    assert "RUNPATH" not in dynamic
    assert "TEXTREL" not in dynamic


def test_what_is_undefined_is_of_the_c_abi(library: Path) -> None:
    """AOTInductor's C ABI, libc, libm, OpenMP and the C++ library: no C++ symbol of torch."""
    symbols = said_by("readelf", "--dyn-syms", "--wide", "--demangle", str(library))
    undefined = re.findall(r" UND (\S.*)", symbols)
    torch_cpp = [name for name in undefined if re.match(r"(at|c10|torch)::", name)]
    assert undefined
    assert torch_cpp == []


def test_the_stack_and_the_data_are_not_executable(library: Path) -> None:
    segments = said_by("readelf", "--segments", "--wide", str(library))
    flags = re.findall(r"^  (\w+) +(?:0x[0-9a-f]+ +){5}([RWE ]{3})", segments, re.MULTILINE)
    assert dict(flags)["GNU_STACK"].strip() == "RW"
    assert [kind for kind, flag in flags if "W" in flag and "E" in flag] == []


@pytest.mark.parametrize("tokens", [1, 2, 5, 64])
def test_the_library_computes_what_the_module_does(
    library: Path, model: Path, monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    """One row included: code is generated as if sizes were at least 2."""
    monkeypatch.syspath_prepend(str(model))
    import small

    module = small.make().eval()
    x = torch.randn(tokens, 48)
    weights = [module.inner.weight.detach(), module.inner.bias.detach(), module.table]
    with torch.no_grad():
        expected = module(x)
    outs = [torch.full_like(value, float("nan")) for value in expected]
    run = open_piece(library)
    inputs = {tuple(t.shape): t for t in (*weights[:1], x)}
    arguments = [x, *weights, *outs]
    assert len(inputs) == 2 or tokens == 48
    assert run(arguments) == []
    torch.testing.assert_close(outs, list(expected))


def test_a_call_leaves_its_list_and_its_inputs_alone(library: Path) -> None:
    run = open_piece(library)
    arguments = [torch.randn(3, 48), torch.randn(48, 48), torch.randn(48), torch.randn(48)]
    arguments += [torch.empty(3, 48), torch.empty(48)]
    kept, copies = list(arguments), [a.clone() for a in arguments[:4]]
    for _ in range(3):
        run(arguments)
    assert all(a is b for a, b in zip(arguments, kept, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(arguments, copies, strict=False))


def test_the_golden_holds_both_outputs(builds: tuple[Loaded, Loaded]) -> None:
    (name,) = [name for name in builds[0].manifest.blobs if name.startswith("golden/")]
    golden = Golden.decode(builds[0].read(name))
    assert [r.shape for r in golden.references] == [(5, 48), (48,)]
    assert all(0 < bound.maximum < 1e-2 for bound in golden.bounds)


def test_no_variable_that_no_table_knows_is_read_in_a_build(builds: tuple[Loaded, Loaded]) -> None:
    """A torch that reads a new one fails here: look at what it does and put it into a table."""
    for loaded in builds:
        found = loaded.manifest.info["environment"]
        assert found["unlisted"] == {}
        assert {"CXX", "HOME", "TORCHINDUCTOR_CACHE_DIR"} <= set(found["read"])
        assert "note" not in found, "recorded from before torch was imported"
