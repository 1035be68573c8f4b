"""What the store must not import or do: nothing in stored bytes can become code."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import vcc.cache

ROOT = Path(vcc.cache.__path__[0]).resolve()
FILES = sorted(ROOT.rglob("*.py"))
NAMES = [str(path.relative_to(ROOT)) for path in FILES]
FORBIDDEN = {
    "ctypes", "dill", "imp", "marshal", "pickle", "runpy", "shelve", "subprocess", "tarfile",
    "torch", "zipfile",
}  # fmt: skip
CALLS = {"eval", "exec", "compile", "__import__", "system", "popen", "print"}


def imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {item.name.split(".")[0] for item in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


def tree_of(path: Path) -> ast.AST:
    """The tree of a file; CPython 3.11 counts depths of all threads together (gh-106905)."""
    try:
        return ast.parse(path.read_text())
    except SystemError:
        return ast.parse(path.read_text())


def called(tree: ast.AST) -> set[str]:
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {f.id for f in functions if isinstance(f, ast.Name)} | {
        f"{ast.unparse(f.value)}.{f.attr}" for f in functions if isinstance(f, ast.Attribute)
    }


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_no_file_imports_or_calls_what_turns_data_into_code(path):
    tree = tree_of(path)
    assert not imported(tree) & FORBIDDEN
    calls = called(tree)
    assert not calls & CALLS
    assert not {call for call in calls if call.startswith("os.") and call[3:] in CALLS}


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_the_environment_is_read_in_one_place(path):
    reads = {"environ", "getenv", "environb"} & {
        node.attr for node in ast.walk(tree_of(path)) if isinstance(node, ast.Attribute)
    }
    assert bool(reads) == (path == ROOT / "settings.py")


def test_a_look_up_in_a_fresh_process_imports_little(tmp_path):
    # What the environment's own start-up files import is not the look-up's.
    program = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import pathlib\n"
        "from support.stores import BASE\n"
        "from vcc.cache.store import Store\n"
        f"assert Store.open(pathlib.Path({str(tmp_path)!r}) / 'none').find(BASE) == ()\n"
        "heavy = {'torch', 'numpy', 'filelock', 'asyncio', 'pickle', 'ctypes', 'subprocess',\n"
        "         'xxhash', 'importlib.metadata', 'zipfile', 'tempfile', 'secrets', 'mmap',\n"
        "         'concurrent.futures'}\n"
        "print(sorted(heavy & (set(sys.modules) - before)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
