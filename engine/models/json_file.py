"""Reading the small JSON files of a model directory, with a cap on their size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vcc.cache.errors import ModelError
from vcc.cache.named_files import read_named

LARGEST = 64 * 2**20


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file of at most 64 MB.

    Raises:
        ModelError: the file is missing, not a regular one, unreadable, too large or no JSON object.
    """
    try:
        text = read_named(file, LARGEST, pipes=False)
    except OSError as error:
        raise ModelError(f"cannot read {file}", str(error.strerror)) from error
    if len(text) > LARGEST:
        raise ModelError(
            f"{file} is too large", f"more than {LARGEST} bytes", "download the file again"
        )
    try:
        value = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise ModelError(
            f"{file} is not proper JSON", str(error), "download the file again"
        ) from error
    if not isinstance(value, dict):
        raise ModelError(
            f"{file} is not a JSON object",
            f"it holds a {type(value).__name__}",
            "download the file again",
        )
    return value
