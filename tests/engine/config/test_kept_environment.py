"""A program that builds in its own process has its variables afterwards."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from vcc.engine.config.environment import (
    kept_environment,
    use_build_folder,
    use_temporary_folder,
)


def test_variables_and_the_temporary_folder_come_back_also_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    before, folder = dict(os.environ), tempfile.gettempdir()

    def building() -> None:
        with kept_environment():
            use_build_folder(tmp_path)
            use_temporary_folder(tmp_path)
            assert "TORCHINDUCTOR_MAX_AUTOTUNE" not in os.environ
            raise KeyError

    with pytest.raises(KeyError):
        building()
    assert dict(os.environ) == before
    assert tempfile.gettempdir() == folder
