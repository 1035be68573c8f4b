"""What a request says of a module: a factory's sources, or a directory's config. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from vcc.engine.models.checkpoint_forward import forward_entries
from vcc.engine.models.remote_code import code_digest
from vcc.engine.models.shapes import InputShape


class ModuleSource(Protocol):
    """As much of a source as identifies its module; see `Source`."""

    @property
    def is_checkpoint(self) -> bool:
        """Whether it is a directory that transformers makes a forward of."""

    @property
    def factory(self) -> object:
        """What makes the module."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The directory's."""

    @property
    def shapes(self) -> tuple[InputShape, ...]:
        """Of the inputs."""

    @property
    def code(self) -> tuple[tuple[str, str], ...]:
        """Names and digests of its sources."""

    @property
    def state(self) -> tuple[tuple[str, str], ...]:
        """Labels and texts of what it was made with."""


def module_entries(source: ModuleSource) -> tuple[tuple[str, str], ...]:
    """Labels and texts that identify the module in a request."""
    if source.is_checkpoint:
        code = (("model.remote_code", code_digest(source.code)),) if source.code else ()
        return (*forward_entries(source.config, source.shapes), *code)
    return (
        ("model.factory", str(source.factory)),
        *((f"model.shape.{shape.name}", str(shape)) for shape in source.shapes),
        *((f"model.code.{module}", digest) for module, digest in source.code),
        *((f"model.{label}", text) for label, text in source.state),
    )
