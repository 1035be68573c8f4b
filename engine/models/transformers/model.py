"""A model of `transformers` from a config: buffers as computed, parameters as shapes alone."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from logging import ERROR
from typing import Any, cast

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from vcc.cache.errors import ModelError
from vcc.cache.extras import install


def make_model(
    architecture: str, config: Mapping[str, Any], dtype: torch.dtype, **entries: str
) -> Any:
    """The model, in evaluation mode, with parameters on the meta device and real buffers.

    Args:
        architecture: name of a class of `transformers`.
        config: the parsed `config.json`.
        dtype: of its parameters, as `from_pretrained` would make them.
        entries: `attn_implementation` and `experts_implementation`.

    Raises:
        ModelError: transformers is not there or has no such model, or cannot make it.
    """
    kind = _class(architecture)
    with _told_here():
        return _made(kind, architecture, config, dtype, entries)


def _made(
    kind: Any,
    architecture: str,
    config: Mapping[str, Any],
    dtype: torch.dtype,
    entries: Mapping[str, str],
) -> Any:
    try:
        settings = kind.config_class.from_dict(dict(config))
        for name, value in entries.items():
            setattr(settings, f"_{name}", value)
        # On the CPU whatever device the caller builds under: buffers are computed.
        with torch.device("cpu"), _without_weights(), torch.no_grad():
            model = kind._from_config(settings, dtype=dtype, **entries)
    except KeyError as error:
        if entries.get("attn_implementation") != error.args[0]:
            raise _unmakeable(architecture, error) from error
        raise ModelError(
            f"{architecture} has attention of its own",
            "its class in transformers chooses kernels from a table that nothing can join",
            "supported are the models whose code calls ALL_ATTENTION_FUNCTIONS",
        ) from error
    except ModelError:
        raise
    except Exception as error:  # code of transformers, on a config of the user's
        raise _unmakeable(architecture, error) from error
    _check_dtypes(model, dtype)
    return model.eval().requires_grad_(False)


def _unmakeable(architecture: str, error: Exception) -> ModelError:
    return ModelError(
        f"transformers cannot make {architecture} from config.json",
        f"{type(error).__name__}: {error!s:.300}",
        "compare config.json with that of the published model",
    )


def _class(architecture: str) -> Any:
    try:
        library = importlib.import_module("transformers")
    except ImportError as error:
        raise ModelError(
            f"architecture {architecture} needs transformers to be compiled",
            f"no decoder for it is built in, and transformers cannot be imported: {error!s:.200}",
            f"{install('transformers')}; a finished artifact runs without it",
        ) from error
    kind = getattr(library, architecture, None)
    if getattr(kind, "config_class", None) is None:
        names = [name for name in dir(library) if name[:1].isupper()]
        near = get_close_matches(architecture, names, n=1)
        raise ModelError(
            f"architecture {architecture} is not supported",
            f"neither vcc nor transformers {library.__version__} has it",
            f"did you mean {near[0]}?" if near else "vcc compile --list-models",
        )
    return kind


@contextmanager
def _told_here() -> Iterator[None]:
    """Keep `transformers` from warning about fields of generation, which no code depends on."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity(ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)


@contextmanager
def _without_weights() -> Iterator[None]:
    def shape_only(module: nn.Module, name: str, parameter: nn.Parameter) -> nn.Parameter | None:
        if parameter is None or parameter.is_meta:
            return None
        empty = torch.empty_like(parameter, device="meta")
        return nn.Parameter(empty, requires_grad=False)

    # Its annotation leaves out that a hook may give another parameter, which its text says.
    hook = register_module_parameter_registration_hook(cast(Any, shape_only))
    try:
        yield
    finally:
        hook.remove()


def _check_dtypes(model: nn.Module, dtype: torch.dtype) -> None:
    """Weights have one dtype here; some models want a few in fp32 whatever the rest is."""
    kept = getattr(model, "_keep_in_fp32_modules_strict", None) or ()
    odd = [n for n, p in model.named_parameters() if p.is_floating_point() and p.dtype != dtype]
    named = [n for n, _ in model.named_parameters() if set(n.split(".")) & set(kept)]
    if odd or (named and dtype != torch.float32):
        raise ModelError(
            f"{type(model).__name__} keeps some weights in another dtype",
            f"{(odd or named)[0]} is not {str(dtype).removeprefix('torch.')} in transformers",
            "compile it with --dtype fp32",
        )


def as_meta(model: nn.Module) -> dict[str, torch.Tensor]:
    """Move the buffers to the meta device too; their data by name."""
    data = dict(model.named_buffers())
    for name, buffer in data.items():
        _set(model, name, buffer.to("meta"))
    return data


def as_empty(model: nn.Module) -> None:
    """Give parameters and buffers memory of the device at hand; under a fake mode, none.

    Tied parameters come apart: whether a checkpoint has one tensor or two is for its bindings.
    """
    for name, one in tuple(model.named_parameters(remove_duplicate=False)):
        fresh = torch.empty(one.shape, dtype=one.dtype)
        _set(model, name, nn.Parameter(fresh, requires_grad=False))
    for name, buffer in tuple(model.named_buffers(remove_duplicate=False)):
        _set(model, name, torch.empty(buffer.shape, dtype=buffer.dtype))


def _set(model: nn.Module, name: str, value: torch.Tensor) -> None:
    owner, _, own = name.rpartition(".")
    setattr(model.get_submodule(owner), own, value)
