"""The architecture's rules: each takes modules and returns its offending lines.

A rule is a plain function so that tests can hand it a file that breaks it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from support.sources import PACKAGES, Module, calls, imports, names

Modules = Iterable[Module]

MAY_IMPORT = {
    "cli": {"cli", "engine", "cache"},
    "engine": {"engine", "cache"},
    "cache": {"cache"},
}
BUILD_SIDE = ("trace", "passes", "partition", "compile", "pipeline", "torch_shim")
RUN_SHIMS = (
    "vcc.engine.torch_shim.dispatch_mode",
    "vcc.engine.torch_shim.aoti_runner",  # the loader of compiled pieces
    "vcc.engine.torch_shim.mem_pool",  # the arena, when the user has imported torch
)
ENVIRONMENT_DOORS = ("engine/config/environment.py", "cache/settings.py")
PRIVATE = re.compile(r"(torch|triton)\.(\w+\.)*_(?!_version__)\w+(\.\w+)*")
BANNED_IMPORTS = {"pickle", "marshal", "shelve", "zipfile", "tarfile", "dill", "cloudpickle"}
BANNED_CALLS = {
    *("exec", "eval", "os.system", "os.popen", "torch.load", "shutil.unpack_archive"),
    *("subprocess.getoutput", "subprocess.getstatusoutput"),
}
LONGEST = 300


def folder(name: str) -> str:
    """`engine` for `vcc.engine.native`."""
    return name.split(".")[1] if name.startswith("vcc.") else ""


def within(name: str, prefixes: Iterable[str]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def backward_imports(found: Modules) -> list[str]:
    return [
        module.at(node, f"imports {name}")
        for module in found
        for node, name in imports(module)
        if folder(name) in PACKAGES and folder(name) not in MAY_IMPORT[module.path.split("/")[0]]
    ]


def torch_or_ctypes_in_cache(found: Modules) -> list[str]:
    return [
        module.at(node, f"imports {name}")
        for module in found
        if module.path.startswith("cache/")
        for node, name in imports(module)
        if within(name, ("torch", "triton", "ctypes", "_ctypes", "cffi"))
    ]


def build_side_in_runtime(found: Modules) -> list[str]:
    """Follows imports through other modules, so a detour over engine/models counts too."""
    table = {module.name: module for module in found}
    build = tuple(f"vcc.engine.{part}" for part in BUILD_SIDE)
    bad, seen = [], set()
    waiting = [module for module in table.values() if module.path.startswith("engine/runtime/")]
    while waiting:
        module = waiting.pop()
        if module.name in seen:
            continue
        seen.add(module.name)
        for node, name in imports(module):
            if within(name, build) and not within(name, RUN_SHIMS):
                bad.append(module.at(node, f"imports {name}"))
            else:
                near = (table.get(name), table.get(name.rpartition(".")[0]))
                waiting.extend(other for other in near if other)
    return sorted(bad)


def environment_outside_its_doors(found: Modules) -> list[str]:
    readers = ("os.environ", "os.environb", "os.getenv", "os.putenv", "os.unsetenv")
    return [
        module.at(node, name)
        for module in found
        if module.path not in ENVIRONMENT_DOORS
        for node, name in names(module)
        if name in readers
    ]


def ctypes_outside_native(found: Modules) -> list[str]:
    return [
        module.at(node, f"imports {name}")
        for module in found
        if module.path != "engine/native.py"
        for node, name in imports(module)
        if within(name, ("ctypes", "_ctypes", "cffi"))
    ]


def consoles_outside_the_console(found: Modules) -> list[str]:
    return [
        module.at(node, name)
        for module in found
        if module.path != "cli/console.py"
        for node, name in names(module)
        if name in ("rich.console.Console", "rich.print", "rich.get_console")
    ]


def private_torch(found: Modules) -> list[str]:
    """Dotted names and strings such as import_module("torch._inductor")."""
    bad = []
    for module in found:
        if module.path.startswith("engine/torch_shim/"):
            continue
        used = list(names(module))
        used += [
            (node, node.value)
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        bad += [module.at(node, name) for node, name in used if PRIVATE.fullmatch(name)]
    return sorted(set(bad))


def code_from_data(found: Modules) -> list[str]:
    bad = []
    for module in found:
        bad += [
            module.at(node, f"imports {name}")
            for node, name in imports(module)
            if within(name, BANNED_IMPORTS) or name in BANNED_CALLS
        ]
        bad += [
            module.at(node, f"calls {name}") for node, name in calls(module) if name in BANNED_CALLS
        ]
    return bad


def shells(found: Modules) -> list[str]:
    return [
        module.at(node, f"{name}(shell=...)")
        for module in found
        for node, name in calls(module)
        for word in node.keywords
        if word.arg == "shell" and getattr(word.value, "value", True) is not False
    ]


def asserts(found: Modules) -> list[str]:
    return [
        module.at(node, "assert")
        for module in found
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Assert)
    ]


def prints_and_exits(found: Modules) -> list[str]:
    return [
        module.at(node, name)
        for module in found
        if not module.path.startswith("cli/")
        for node, name in calls(module)
        if name in ("print", "sys.exit", "exit", "quit", "sys.stdout.write")
    ]


def long_files(found: Modules) -> list[str]:
    sizes = [(module.path, module.text.count("\n")) for module in found]
    return [f"{path}: {lines} lines" for path, lines in sizes if lines > LONGEST]


def modules_without_docstring(found: Modules) -> list[str]:
    return [module.path for module in found if not ast.get_docstring(module.tree)]


def definitions_without_docstring(found: Modules) -> list[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [
        module.at(node, node.name)
        for module in found
        for node in module.tree.body
        if isinstance(node, kinds) and not node.name.startswith("_")
        if not ast.get_docstring(node)
    ]
