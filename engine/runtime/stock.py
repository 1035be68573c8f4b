"""Stock torch.compile, as the configuration asks for it."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import torch

from vcc.engine.config.modes import Backend
from vcc.engine.config.types import CompilationConfig

Module = TypeVar("Module", bound=torch.nn.Module)


def stock_compiled(module: Module, config: CompilationConfig) -> Module:
    """`torch.compile(module)`: sizes vary, and what a guard no longer holds for compiles anew.

    Args:
        module: what to compile.
        config: its back end, Inductor's options, and whether Inductor cuts its own graphs.
    """
    backend = (config.backend or Backend.INDUCTOR).value
    options: dict[str, Any] = dict(config.inductor_config or ()) if backend == "inductor" else {}
    if config.use_inductor_graph_partition:
        options["graph_partition"] = True
    made: Any = torch.compile(module, dynamic=True, backend=backend, options=options or None)
    return cast(Module, made)
