"""Where the store lies. The one reader of the environment in `cache/`."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "VCC_CACHE_DIR"


def cache_root(override: Path | None = None) -> Path:
    """The root of the store: `override`, else VCC_CACHE_DIR, else the user's cache folder.

    The folder need not exist. A relative path counts from the working directory.
    """
    if override is not None:
        return Path(os.path.abspath(override))
    named = os.environ.get(VARIABLE, "")
    if named:
        return Path(os.path.abspath(os.path.expanduser(named)))
    import platformdirs  # not needed where the place is named

    return Path(platformdirs.user_cache_dir("vcc", appauthor=False))
