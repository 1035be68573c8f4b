"""Refusals that adapters bring into a step; imported by every process that steps."""

from __future__ import annotations

from vcc.cache.errors import ModelError, UsageError


class AdapterUnreadable(ModelError):
    """The matrices of a loaded adapter cannot be read: requests for it fail, others go on.

    Args:
        name: of the adapter.
        cause: why; what it says is said.
    """

    def __init__(self, name: str, cause: ModelError) -> None:
        super().__init__(cause.what, cause.why, cause.hint)
        self.name = name


def no_adapters() -> UsageError:
    """What is raised."""
    return UsageError(
        "the model was compiled without adapters",
        "its code has no place where one could be added",
        "compile it with --enable-lora (and --max-loras, --max-lora-rank)",
    )
