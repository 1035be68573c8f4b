"""The refusal of an adapter for code that has none; imported by every process that steps."""

from __future__ import annotations

from vcc.cache.errors import UsageError


def no_adapters() -> UsageError:
    """What is raised."""
    return UsageError(
        "the model was compiled without adapters",
        "its code has no place where one could be added",
        "compile it with --enable-lora (and --max-loras, --max-lora-rank)",
    )
