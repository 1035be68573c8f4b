"""compile: a module of a running program, with code from the store.

model = vcc.compile(net.eval(), dynamic_arg_dims={"x": 0}, sizes={"T": (1, 512)})
y = model(x)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcc.cache.errors import UsageError
from vcc.engine.library.compiled import Accounts, Compiled
from vcc.engine.library.options import Dims, make_options

if TYPE_CHECKING:
    from torch import nn

    from vcc.engine.config.types import CompilationConfig
    from vcc.engine.monitor import Counters, Ledger


def compile(
    module: nn.Module,
    *,
    dynamic_arg_dims: Mapping[str, Dims] | None = None,
    sizes: Mapping[str, tuple[int, int]] | None = None,
    compilation: CompilationConfig | Mapping[str, Any] | None = None,
    cache_dir: Path | None = None,
    require_warm: bool = False,
    golden: str = "one",
    copy: bool = True,
    jobs: int = 0,
    monitor: Ledger | None = None,
    counters: Counters | None = None,
) -> Compiled[..., Any]:
    """A callable that computes the module's forward by compiled code, on the CPU.

    Nothing is built here: the first call of each variant, or `prepare`, boots its artifact or
    builds it. A variant is a set of dtypes, fixed sizes and values that are no tensors. Weights
    stay the module's own, so writing into them is seen.

    Args:
        module: in evaluation mode, on the CPU.
        dynamic_arg_dims: dimensions whose size may change, by argument: `0`, `(0, 1)` or
            `{0: "T", 1: "L"}`; dimensions of one name have one size, without names all have `T`.
        sizes: smallest and largest value of each name; (1, 2048) where it is not said.
        compilation: a configuration, or its fields as in docs/config.md.
        cache_dir: the store; None where the settings say.
        require_warm: a miss is an error.
        golden: "off", "one" or "all": which pieces are checked at boot.
        copy: give new tensors; False gives views that the next call overwrites.
        jobs: worker processes of a build; 0 chooses.
        monitor: told of the time and memory of every stage.
        counters: counts for several compiled modules together.

    Raises:
        ConfigError: a field, a dimension or a size that cannot be.
        UsageError: it is no module.
    """
    from torch import nn

    if not isinstance(module, nn.Module):
        raise UsageError(
            f"a {type(module).__name__} is no nn.Module",
            "vcc.compile takes modules",
            "decorate functions with @vcc.cache_compiled",
        )
    options = make_options(
        dynamic_arg_dims,
        sizes,
        compilation,
        cache_dir=cache_dir,
        require_warm=require_warm,
        golden=golden,
        copy=copy,
        jobs=jobs,
    )
    subject: Any = type(module)
    return Compiled(module, subject, options, Accounts.of(monitor, counters))
