"""The version of a pass: a digest of its source files and of its parameters. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from vcc.cache.digest import Digest
from vcc.engine.config.levels import PASS_RULES, PassRule
from vcc.engine.config.plain import canonical
from vcc.engine.config.types import Scalar

FOLDER = Path(__file__).resolve().parent

SHARED = ("base.py", "pattern.py", "rewrite.py")
"""Files of this folder that every pass is made with."""

RULES: Mapping[str, PassRule] = {rule.name: rule for rule in PASS_RULES}
"""Our own passes by name."""


def version_of(files: Sequence[Path], parameters: Sequence[tuple[str, Scalar]] = ()) -> str:
    """The digest of a pass.

    Args:
        files: its sources; the shared files of this folder are added.
        parameters: names and values of what its rewrite is given beside the graph.
    """
    everything = (*(FOLDER / name for name in SHARED), *files)
    sources = [[file.name, Digest.of(file.read_bytes()).hex] for file in everything]
    return Digest.of(canonical([sources, dict(parameters)]).encode()).short


def rule_version(rule: PassRule) -> str:
    """The version of one of our own passes, by its row."""
    return version_of([FOLDER / name for name in (rule.file, *rule.parts)], rule.parameters)
