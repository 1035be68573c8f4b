"""Which code of `transformers` a model is traced from, as entries of the code key. Torch-free.

Nothing is imported. The files are those of the model's own folder, of the folders that it takes
layers from, and of what all models share.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from vcc.cache.digest import Digest

SHARED = (
    "activations.py",
    "configuration_utils.py",
    "conversion_mapping.py",
    "core_model_loading.py",
    "initialization.py",
    "integrations/moe.py",
    "integrations/sdpa_attention.py",
    "masking_utils.py",
    "modeling_layers.py",
    "modeling_rope_utils.py",
    "modeling_utils.py",
    "pytorch_utils.py",
)
"""Files that models of all kinds are made of, where a release has them."""

MOST_FOLDERS = 64
"""Models whose layers one model may take; far above any."""


def source_entries(config: Mapping[str, Any]) -> dict[str, str]:
    """The version of `transformers`, and a digest of the sources of the model that a config names.

    Where transformers is not installed both are `none`: nothing can be traced then.
    """
    place = _package()
    if place is None:
        return {"version.transformers": "none", "model.source": "none"}
    return {
        "version.transformers": _version(),
        "model.source": _digest(place, folder_of(config, place)),
    }


def has_transformers() -> bool:
    """Whether transformers is there to be imported."""
    return _package() is not None


def may_have(architecture: str, config: Mapping[str, Any]) -> bool:
    """Whether the installed `transformers` has a class of this name in the model's folder.

    Where it is not installed nobody knows, and an artifact may be there all the same: yes.
    """
    place = _package()
    if place is None:
        return True
    folder = place / "models" / folder_of(config, place)
    wanted = f"class {architecture}(".encode()
    return any(wanted in file.read_bytes() for file in folder.glob("modeling_*.py"))


def forward_inputs(architecture: str, config: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Names of the inputs of a class's forward, as its source has them.

    None where it is not installed, or its forward is one that the file takes from elsewhere.
    """
    place = _package()
    if place is None:
        return None
    files = (place / "models" / folder_of(config, place)).glob("modeling_*.py")
    wanted = f"class {architecture}(".encode()
    for text in (file.read_bytes() for file in files):
        if wanted in text:
            classes = {one.name: one for one in ast.parse(text).body if type(one) is ast.ClassDef}
            return _inputs(classes, architecture)
    return None


def _inputs(classes: Mapping[str, ast.ClassDef], name: str) -> tuple[str, ...] | None:
    if name not in classes:
        return None
    for one in classes[name].body:
        if isinstance(one, ast.FunctionDef) and one.name == "forward":
            plain = (*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs)
            return tuple(arg.arg for arg in plain if arg.arg != "self")
    bases = (one.id for one in classes[name].bases if isinstance(one, ast.Name))
    return next(filter(None, (_inputs(classes, base) for base in bases)), None)


def folder_of(config: Mapping[str, Any], place: Path) -> str:
    """The folder of a config's model; one that is not there where `model_type` names none.

    The text or vision part of a model of several (`clip_vision_model`) has the folder of the whole.
    """
    name = str(config.get("model_type") or "").replace("-", "_")
    parts = name.split("_") if name.isidentifier() else []
    for count in range(len(parts), 0, -1):
        folder = "_".join(parts[:count])
        if folder and (place / "models" / folder).is_dir():
            return folder
    return "-"


def source_files(place: Path, name: str) -> Iterator[Path]:
    """The files that the digest is of, for a model's folder under `models`."""
    waiting, seen = [name], set[str]()
    while waiting and len(seen) < MOST_FOLDERS:
        folder = waiting.pop()
        if folder in seen or not folder.isidentifier():
            continue
        seen.add(folder)
        for file in sorted((place / "models" / folder).glob("*.py")):
            if file.name.startswith(("modeling_", "configuration_")):
                yield file
                waiting.extend(_other_models(file))
    yield from (place / name for name in SHARED if (place / name).is_file())


def _package() -> Path | None:
    spec = PathFinder.find_spec("transformers")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _version() -> str:
    from importlib import metadata  # 10 ms, and a run looks for no version

    try:
        return metadata.version("transformers")
    except metadata.PackageNotFoundError:
        return "none"


@lru_cache(maxsize=4)
def _digest(place: Path, name: str) -> str:
    files = sorted(set(source_files(place, name)))
    lines = (f"{f.relative_to(place)} {Digest.of(f.read_bytes()).hex}\n" for f in files)
    return Digest.of("".join(lines).encode()).hex


def _other_models(file: Path) -> Iterator[str]:
    """`llama` for `from ..llama.modeling_llama import …`."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 2 and node.module:
            yield node.module.partition(".")[0]
