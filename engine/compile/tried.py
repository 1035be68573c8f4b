"""A factory's module tried once where no code is made of it: faults show in the build, not the run.

The module is made as a run will make it, since a factory may keep what it made; its forward runs on
fake tensors, which cost neither time nor memory.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from vcc.cache.errors import ModelError
from vcc.engine.compile.building import Build
from vcc.engine.compile.source import torch_name
from vcc.engine.graphs.dtypes import DTYPES
from vcc.engine.models.build_module import build_module
from vcc.engine.models.checkpoint_forward import CheckpointRef, too_long
from vcc.engine.models.converted import converted
from vcc.engine.models.factory import FactoryRef
from vcc.engine.models.shapes import InputShape
from vcc.engine.runtime.module_loader import forward_of
from vcc.engine.torch_shim.fake import as_fake, fake_mode, needs_data
from vcc.engine.trace.checkpoint_forward import forward_trace


def try_module(build: Build, factory: FactoryRef) -> None:
    """Build the module and run its forward at the largest declared sizes, without data.

    Raises:
        ModelError: the factory fails, it gives no module, or the forward fails on these inputs.
    """
    source, dtype = build.settled.request.source, DTYPES[torch_name(build.settled)]
    if isinstance(factory, CheckpointRef):
        try_checkpoint(build, factory)
        return
    module, mode = converted(build_module(factory), dtype), fake_mode()
    fakes = as_fake(mode, module)
    with mode:
        inputs = {one.name: _input(one, dtype, highest=True) for one in source.shapes}
        try:
            forward_of(module, fakes)(inputs)
        except ModelError as error:
            cause = error.__cause__
            if cause is not None and needs_data(cause):
                build.events.note(f"the forward was not tried, it depends on data: {cause!s:.200}")
                return
            raise _declared(error, source.shapes) from cause


def try_checkpoint(build: Build, ref: CheckpointRef) -> None:
    """Make a model of `transformers` and run its forward at the largest and least sizes.

    Raises:
        ModelError: it cannot be made, has no such inputs, or fails on their shapes.
    """
    source, dtype = build.settled.request.source, DTYPES[torch_name(build.settled)]
    made = forward_trace(ref, source.shapes, dtype)
    for highest in (True, False):
        with made.mode or fake_mode():
            inputs = {one.name: _input(one, dtype, highest=highest) for one in source.shapes}
            try:
                forward_of(made.module)(inputs)
            except ModelError as error:
                cause = error.__cause__
                if cause is not None and needs_data(cause):
                    build.events.note(f"the forward was not tried, it needs data: {cause!s:.200}")
                    return
                raise _of_checkpoint(build, ref, error) from cause


def _of_checkpoint(build: Build, ref: CheckpointRef, error: ModelError) -> ModelError:
    source = build.settled.request.source
    given = ", ".join(map(str, source.shapes))
    failed = ModelError(
        f"{ref.attribute} does not run on the declared shapes",
        f"{error.why} (declared: {given})",
        "declare what the model takes; without --shape inputs follow from config.json",
    )
    return too_long(source.config, source.shapes) or failed


def _declared(error: ModelError, shapes: Iterable[InputShape]) -> ModelError:
    """The same with the inputs that it was given."""
    given = ", ".join(map(str, shapes)) or "none"
    return ModelError(error.what, f"{error.why} (declared inputs: {given})", error.hint or _HINT)


_HINT = "each input of the forward is declared: --shape x=8x128, or a range --shape x=1-8x128"


def _input(shape: InputShape, dtype: torch.dtype, *, highest: bool) -> torch.Tensor:
    wanted = DTYPES[shape.dtype] if shape.dtype else dtype
    sizes = [dim.high if highest else dim.low for dim in shape.dims]
    return torch.zeros(sizes, dtype=wanted)
