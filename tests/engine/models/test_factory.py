"""`module:factory`: source files are found without running them; building says what failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vcc.cache.errors import ModelError
from vcc.engine.models.build_module import build_module
from vcc.engine.models.factory import FactoryRef, sources_of

FILES = {
    "shop/__init__.py": "",
    "shop/net.py": (
        "import json, torch\n"
        "from torch import nn\n"
        "from . import parts\n"
        "from .parts import WIDTH\n"
        "raise_on_import = open('imported', 'w')\n"
        "class Net(nn.Linear):\n"
        "    def __init__(self):\n"
        "        from shop.deep.late import BIAS\n"
        "        super().__init__(WIDTH, 2, bias=BIAS)\n"
        "def make(): return Net()\n"
        "def broken(): raise RuntimeError('no luck')\n"
        "def number(): return 3\n"
        "def leaves(): raise SystemExit(0)\n"
        "ready = Net()\n"
        "CONSTANT = 1\n"
    ),
    "shop/parts.py": "import numpy\nWIDTH = 4\n",
    "shop/deep/__init__.py": "",
    "shop/deep/late.py": "BIAS = True\n",
    "shop/unused.py": "X = 1\n",
    "shop/bad_import.py": "import nothing_like_this\n",
    "shop/bad_exit.py": "raise SystemExit(0)\n",
    "shop/bad_syntax.py": "def (\n",
}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    for name in [name for name in sys.modules if name.split(".")[0] == "shop"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ref(text: str = "shop.net:make") -> FactoryRef:
    return FactoryRef.parse(text)


def test_the_closure_is_the_projects_own_imports_and_versions_of_others(shop: Path) -> None:
    found = dict(sources_of(ref()))
    assert found.keys() == {
        *("shop", "shop.net", "shop.parts", "shop.deep", "shop.deep.late"),
        "numpy.version",
    }


def test_nothing_is_imported(shop: Path) -> None:
    sources_of(ref())
    assert not (shop / "imported").exists()
    assert "shop" not in sys.modules


@pytest.mark.parametrize("changed", ["shop/net.py", "shop/parts.py", "shop/deep/late.py"])
def test_an_edit_of_any_imported_file_changes_the_sources(changed: str, shop: Path) -> None:
    before = sources_of(ref())
    (shop / "shop/unused.py").write_text("X = 2\n")
    assert sources_of(ref()) == before
    with (shop / changed).open("a") as stream:
        stream.write("# edited\n")
    assert sources_of(ref()) != before


def test_sources_do_not_depend_on_where_they_lie(shop: Path, tmp_path: Path) -> None:
    before = sources_of(ref())
    other = tmp_path / "elsewhere"
    other.mkdir()
    (shop / "shop").rename(other / "shop")
    assert sources_of(ref(), other) == before


def test_a_module_without_source_is_refused(shop: Path) -> None:
    compile_all = "import compileall; compileall.compile_dir('shop', legacy=True, quiet=1)"
    subprocess.run([sys.executable, "-c", compile_all], cwd=shop, check=True)
    (shop / "shop/parts.py").unlink()
    with pytest.raises(ModelError, match=r"source of shop\.parts"):
        sources_of(ref())


def test_source_that_is_not_python_is_refused(shop: Path) -> None:
    with pytest.raises(ModelError, match="not valid Python"):
        sources_of(ref("shop.bad_syntax:make"))


@pytest.mark.parametrize("module", ["nowhere", "shop.nowhere", "shop.net.nowhere"])
def test_a_missing_module_is_named(module: str, shop: Path) -> None:
    with pytest.raises(ModelError, match=f"no module named {module}"):
        sources_of(ref(f"{module}:make"))


@pytest.mark.parametrize("text", ["", "shop", ":make", "shop:", "shop:a:b", "a b:c", "../x:y"])
def test_a_reference_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ModelError):
        FactoryRef.parse(text)


@pytest.mark.parametrize("name", ["make", "Net", "ready"])
def test_a_function_a_class_or_a_module_is_built(name: str, shop: Path) -> None:
    module = build_module(ref(f"shop.net:{name}"))
    assert not module.training
    assert str(shop) not in sys.path


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("shop.net:nothing", "has no nothing"),
        ("shop.net:broken", "no luck"),
        ("shop.net:number", "no nn.Module"),
        ("shop.net:CONSTANT", "no nn.Module"),
        ("shop.bad_import:make", "nothing_like_this"),
        ("shop.net:leaves", "SystemExit: 0"),
        ("shop.bad_exit:make", "SystemExit: 0"),
    ],
)
def test_what_fails_while_building_is_said(text: str, named: str, shop: Path) -> None:
    with pytest.raises(ModelError, match=named):
        build_module(ref(text))


EDITS = {
    "function body": ("shop/net.py", "return 3", "return 4"),
    "default argument": ("shop/parts.py", "WIDTH = 4", "def width(n=5): return n\nWIDTH = 4"),
    "imported helper": ("shop/deep/late.py", "True", "False"),
    "code in a string": ("shop/parts.py", "WIDTH = 4", "exec('WIDTH = 5')"),
    "package's own file": ("shop/__init__.py", "", "FLAG = 1\n"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_gives_another_model(edit: str, shop: Path) -> None:
    """F101: whatever is edited, the request is another, so that no older artifact answers."""
    from vcc.engine.models.source import open_source

    file, old, new = EDITS[edit]
    before = open_source("shop.net:make").model_key()
    text = (shop / file).read_text()
    assert old in text
    (shop / file).write_text(text.replace(old, new) if old else new)
    after = open_source("shop.net:make").model_key()
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    assert [one.label for one in before.diff(after)] == [f"model.code.{module}"]


def test_a_module_that_lives_in_memory_only_has_no_source(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`<string>` code: nothing could be digested, so it is an error and not left out."""
    from types import ModuleType

    module = ModuleType("in_memory")
    exec(compile("def make(): return 1", "<string>", "exec"), vars(module))
    monkeypatch.setitem(sys.modules, "in_memory", module)
    with pytest.raises(ModelError, match="no module named in_memory"):
        sources_of(ref("in_memory:make"))


def test_source_that_cannot_be_read_is_an_error_and_not_skipped(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.read_bytes

    def read(path: Path) -> bytes:
        if path.name == "late.py":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", read)
    with pytest.raises(ModelError, match=r"cannot read the source of shop\.deep\.late") as error:
        sources_of(ref())
    assert error.value.why == "Permission denied"
