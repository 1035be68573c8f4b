"""Inductor's FX wrapper: one piece in, a graph of allocations, matrix products and launches out.

Inductor binds the arguments and the grid of a launch by position, which goes wrong without an error
where a constexpr stands before a run-time argument or outside the autotune configurations. Here
both are bound by name; a launch is a node of `launch` with everything it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import sympy
import torch
from torch.fx import GraphModule

from vcc.cache.errors import CompileError, ConfigError
from vcc.engine.config.inductor_options import CUDA_OPTIONS
from vcc.engine.torch_shim.combined import varying_sums_apart
from vcc.engine.torch_shim.profiles import DeviceProfile
from vcc.engine.torch_shim.triton_build import CompiledKernel, kernel_of


def launch(
    kernel: str, grid: Sequence[Any], arguments: Mapping[str, Any], written: Sequence[str]
) -> None:
    """Target of a launch node; never called with tensors.

    Args:
        kernel: key of `FxPiece.kernels`.
        grid: three sizes.
        arguments: parameter name to tensor or size.
        written: parameters through which the kernel may write.
    """


@dataclass(frozen=True, slots=True)
class FxPiece:
    """What Inductor made of a piece: its graph, and the kernels that it launches."""

    graph: GraphModule
    kernels: Mapping[str, CompiledKernel]


def cuda_options(user: Mapping[str, Any]) -> dict[str, Any]:
    """All Inductor options of a build for CUDA; the user's win."""
    return {**CUDA_OPTIONS, **user}


def compile_to_graph(
    graph: GraphModule,
    arguments: Sequence[torch.Tensor],
    options: Mapping[str, Any],
    profile: DeviceProfile,
    rewrite: Callable[[Any], None] | None = None,
) -> FxPiece:
    """Compile a piece for the installed device (`cuda_build.install`).

    Args:
        graph: out-buffer form, not functionalised.
        arguments: fake CUDA tensors that carry ranges and hints.
        options: of `cuda_options`.
        profile: the device.
        rewrite: changes Inductor's graph (`torch.fx.Graph`) in place, after its own passes.

    Raises:
        ConfigError: an option of the user that this torch does not know.
        CompileError: a kernel that a node table cannot launch.
    """
    from torch._inductor import aot_compile, config

    known = {name: value for name, value in options.items() if _known(config, name)}
    for name in options.keys() - known.keys() - CUDA_OPTIONS.keys():
        raise ConfigError(f'Inductor of torch {torch.__version__} has no option "{name}"')
    known["post_grad_custom_post_pass"] = rewrite
    with named_launches() as tuners, plain_addends(), varying_sums_apart():
        made: Any = aot_compile(graph, tuple(arguments), options=known)
    kernels = {name: _kernel(tuner, profile) for name, tuner in tuners.items()}
    return FxPiece(made, kernels)


def _known(config: Any, name: str) -> bool:
    value = config
    for part in name.split("."):
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return True


def _kernel(tuner: Any, profile: DeviceProfile) -> CompiledKernel:
    # The grid was computed for the first configuration: take its cubin and no other.
    compiled = tuner.compile_results[0].kernel
    text = Path(tuner.fn.fn.__code__.co_filename).read_text(encoding="utf-8")
    return kernel_of(compiled, profile, text=text)


@contextmanager
def named_launches() -> Iterator[dict[str, Any]]:
    """Inside, launches are bound by name; gives the tuner of each kernel by its name."""
    from torch._inductor.codegen import wrapper_fxir

    tuners: dict[str, Any] = {}
    module: Any = wrapper_fxir
    converter = module.FxConverter
    changes: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
        (converter, "_generate_triton_call", _bound_by_name(tuners)),
        (module, "_node_metadata_hook", _metadata(module._node_metadata_hook)),
        (converter, "_generate_unbacked_symbol_defs", _defined(converter)),
    )
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    for owner, name, function in changes:
        setattr(owner, name, function)
    try:
        yield tuners
    finally:
        for owner, name, function in originals:
            setattr(owner, name, function)


@contextmanager
def plain_addends() -> Iterator[None]:
    """Inside, only a matrix of the result's size is added by a product, no bias that repeats.

    A table's product reads an addend of as many rows; a bias is added where its sum is used.
    """
    from torch._inductor.fx_passes import post_grad

    module: Any = post_grad
    original = module.should_prefer_unfused_addmm

    def prefer(match: Any) -> bool:
        result = match.output_node().meta["val"]
        repeats = match.kwargs["inp"].meta["val"].shape != result.shape
        return bool(repeats or original(match))

    module.should_prefer_unfused_addmm = prefer
    try:
        yield
    finally:
        module.should_prefer_unfused_addmm = original


def _bound_by_name(tuners: dict[str, Any]) -> Callable[..., None]:
    def generate(self: Any, line: Any) -> None:
        tuner = self.kernels[line.kernel_name].tuner
        tuners[line.kernel_name] = tuner
        if not tuner.compile_results:
            tuner.precompile()
        given = _given(self, line, tuner)
        grid = _grid(self, tuner, given)
        arguments = {name: _argument(self, value) for name, value in given.items()}
        written = _written(line, tuner, arguments)
        self.gm.graph.call_function(launch, (line.kernel_name, grid, arguments, written))

    return generate


def _written(line: Any, tuner: Any, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Parameters through which a kernel writes; of a user's kernel those that torch found."""
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    pointers = [name for name, value in arguments.items() if isinstance(value, torch.fx.Node)]
    if not any(line.raw_keys or ()):
        # Inductor's own kernel. Inductor names its parameters by what they are for: out_ptr0 and
        # in_out_ptr0 are written, in_ptr0 and the arg_X of a template are read. Inputs that are
        # written all the same, and workspaces that are cleared first, are in mutated_arg_names.
        return tuple(name for name in pointers if name in tuner.mutated_arg_names or "out" in name)
    wanted = getattr(line, "original_fxnode_name", None)
    for kernel in V.graph.operations:
        if isinstance(kernel, ir.UserDefinedTritonKernel) and kernel.fx_node.name == wanted:
            changed = {one.get_name() for one in kernel.mutable_args}
            names = {n: v.get_name() for n, v in kernel.kwargs.items() if isinstance(v, ir.IRNode)}
            return tuple(name for name in pointers if names.get(name) in changed)
    return tuple(pointers)


def _given(converter: Any, line: Any, tuner: Any) -> dict[str, Any]:
    """Values of a launch by parameter name; those of the grid are behind them."""
    extra = list(tuner.inductor_meta.get("extra_launcher_args") or ())
    values = [
        _looked_up(converter, value, raw)
        for value, raw in zip_longest(line.call_args, line.raw_args or ())
    ]
    keys = [key for key in (line.raw_keys or ()) if key]
    if not keys:  # Inductor's own kernel: its parameters in order, also those that are always 1
        keys = [one.name for one in tuner.fn.params if not one.is_constexpr]
    names = [*keys, *extra]
    if len(names) != len(values) or len(set(names)) != len(names):
        raise CompileError(
            f"the arguments of kernel {line.kernel_name} cannot be bound by name",
            f"{len(values)} values for {', '.join(names)}",
        )
    return dict(zip(names, values, strict=True))


def _looked_up(converter: Any, value: Any, raw: Any) -> Any:
    """A call argument as a node, a sympy expression or a number; views of buffers are made."""
    if not isinstance(value, str):
        return getattr(value, "inner_expr", value)
    if value not in converter.buffer_to_node and raw is not None:
        converter.buffer_to_node[value] = converter._generate_buffer(raw)
    return converter.buffer_to_node[value]


def _grid(converter: Any, tuner: Any, given: Mapping[str, Any]) -> tuple[Any, ...]:
    from torch._inductor.codegen.wrapper_fxir import replace_floor_div
    from torch._inductor.runtime.triton_heuristics import GridExpr

    config = tuner.compile_results[0].config
    sizes = {n: sympy.sympify(v) for n, v in given.items() if not isinstance(v, torch.fx.Node)}
    sizes["max"] = sympy.Max  # kernels side by side take the larger grid; Python's compares sizes
    mode: Any = getattr(tuner, "grid_mode", "python")
    grid = GridExpr.from_meta(tuner.inductor_meta, config, mode=mode).eval_slow(sizes)
    exact = [replace_floor_div(size) if isinstance(size, sympy.Expr) else size for size in grid]
    return tuple(converter._generate_sym_nodes(exact))


def _argument(converter: Any, value: Any) -> Any:
    if value is None or isinstance(value, (float, torch.fx.Node)):
        return value
    return converter._generate_sym_node(value)


def _metadata(original: Callable[..., None]) -> Callable[..., None]:
    """Calls that write into a given tensor are not run to learn what they return."""

    def hook(node: Any, *args: Any, **kwargs: Any) -> None:
        out = node.kwargs.get("out")
        if node.target is launch:
            node.meta["val"] = None
        elif isinstance(out, torch.fx.Node):
            node.meta["val"] = out.meta["val"]
        else:
            original(node, *args, **kwargs)

    return hook


def _defined(converter: Any) -> Callable[..., None]:
    original = converter._generate_unbacked_symbol_defs

    def generate(self: Any, line: Any) -> None:
        """An op that returns nothing defines no sizes; torch 2.11 and 2.13 stumble over it."""
        if line.unbacked_bindings:
            original(self, line)

    return generate
