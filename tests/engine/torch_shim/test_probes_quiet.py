"""Under `-W error` a build stands what libraries warn of, and nothing that vcc causes."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

import pytest
import torch

from vcc.engine.torch_shim.export import export_step
from vcc.engine.torch_shim.quiet import SHAPES, libraries_may_warn


def warn(module: str, category: type[Warning] = DeprecationWarning) -> None:
    """A warning that is attributed to a module."""
    warnings.warn_explicit("old", category, f"{module}.py", 1, module=module, registry={})


def test_quiet_libraries_may_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with libraries_may_warn():
            for module in ("torch", "torch.jit._script", "copyreg", "triton.runtime", "sympy.core"):
                warn(module)
                warn(module, FutureWarning)
            for module in ("vcc.engine.pipeline", "users_model", "torchlike"):
                with pytest.raises(DeprecationWarning):
                    warn(module)
        with pytest.raises(DeprecationWarning):
            warn("torch")


def test_one_kind_of_warning_as_error_is_treated_alike() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        with libraries_may_warn():
            warn("torch", ResourceWarning)
            with pytest.raises(ResourceWarning):
                warn("vcc.cache.store", ResourceWarning)


def test_without_errors_everything_is_shown_as_before() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with libraries_may_warn():
            warn("torch")
            warn("vcc")
    assert len(shown) == 2


class Branches(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("the model's own word", file=sys.stderr)
        return x if x.sum() > 0 else -x


def test_quiet_export_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """Of a failed export, what the model prints is shown, and no graph."""
    given: dict[str, Any] = {"x": torch.zeros(2, 3)}
    with pytest.raises(Exception, match="data-dependent"):
        torch.export.export(Branches(), (), given, strict=False)
    assert "torch.ops.aten" in capfd.readouterr().err  # else none of this is wanted any more
    with pytest.raises(Exception, match="data-dependent"):
        export_step(Branches(), given, {"x": {}}, None)
    assert capfd.readouterr().err == "the model's own word\n"
    assert not logging.getLogger(SHAPES).filters
