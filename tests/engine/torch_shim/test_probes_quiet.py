"""Under `-W error` a build stands what libraries warn of, and nothing that vcc causes."""

from __future__ import annotations

import warnings

import pytest

from vcc.engine.torch_shim.quiet import libraries_may_warn


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
