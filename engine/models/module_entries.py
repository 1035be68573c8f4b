"""What a request says of a module: a factory's sources, or a directory's config. Torch-free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcc.engine.models.checkpoint_forward import forward_entries
from vcc.engine.models.remote_code import code_digest

if TYPE_CHECKING:
    from vcc.engine.models.source import Source


def module_entries(source: Source) -> tuple[tuple[str, str], ...]:
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
