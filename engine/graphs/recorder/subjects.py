"""From a settled request to the model that is recorded, under torch: a decoder or a module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from vcc.cache.errors import ConfigError
from vcc.engine.config.modes import CompileMode
from vcc.engine.graphs.dtypes import DTYPES, NAMES
from vcc.engine.graphs.recorder.capture import Run, Subject
from vcc.engine.graphs.recorder.decoder_plan import INPUTS, decoder_recording
from vcc.engine.graphs.recorder.eager_ops import EagerOps
from vcc.engine.graphs.recorder.plan import Descriptor, Recording, Slot, placed
from vcc.engine.graphs.table.types import Role
from vcc.engine.models.bindings import bindings_of
from vcc.engine.models.build_module import build_module
from vcc.engine.models.constants import constants_of
from vcc.engine.models.converted import converted
from vcc.engine.models.decoder import Decoder
from vcc.engine.op_routes import op_choice
from vcc.engine.ops.register import load_ops
from vcc.engine.request import Settled
from vcc.engine.runtime.batch import StepLimits
from vcc.engine.torch_shim.profiles import DeviceProfile

CACHE_SHARE = 4
"""The KV cache takes at most one part in this many of the device's memory."""

ONLY = Descriptor(1, 1, False)
"""The one graph of a module: its inputs have one size."""

OUTPUT = "output"

WRAPS: Mapping[CompileMode, Callable[[nn.Module], Any]] = {
    CompileMode.NO_COMPILATION: lambda module: module,
    CompileMode.STOCK_TORCH_COMPILE: lambda module: torch.compile(module, dynamic=True),
    CompileMode.VCC_COMPILE: lambda module: module,
    CompileMode.DYNAMO_TRACE_ONCE: lambda module: module,
}
"""How a module becomes what runs; a model that does not export is recorded as it is."""


def subject_of(settled: Settled, profile: DeviceProfile) -> Subject:
    """What is recorded for a request.

    Raises:
        ConfigError: a module whose inputs have more than one size.
        ModelError: a factory fails.
    """
    load_ops()
    made = _decoder if settled.request.source.kind == "decoder" else _module
    return made(settled, profile)


def limits_of(settled: Settled, block_bytes: int, profile: DeviceProfile) -> StepLimits:
    """Limits of a step, with as many KV blocks as all sequences can fill and the device holds."""
    model, spec = settled.model, settled.request.source.spec
    block, length = model.block_size or 1, model.max_model_len or 1
    seqs, width = model.max_num_seqs or 1, -(-length // block)
    affordable = profile.total_memory // CACHE_SHARE // block_bytes
    sizes = settled.resolved.config.capture_sizes or (1,)
    return StepLimits(
        max_tokens=max(sizes),
        max_seqs=seqs,
        block_size=block,
        num_blocks=min(seqs * width, max(affordable, width)),
        max_blocks_per_seq=width,
        max_model_len=length,
        vocab=spec.vocab,
    )


def _decoder(settled: Settled, profile: DeviceProfile) -> Subject:
    source = settled.request.source
    spec, dtype = source.spec, _dtype(settled)
    with torch.device("meta"):
        module = Decoder(spec, dtype, op_choice(settled))
    shapes = {name: tuple(one.shape) for name, one in module.named_parameters()}
    block_bytes = spec.layers * prod(spec.kv_shape(1, settled.model.block_size or 1))
    limits = limits_of(settled, block_bytes * dtype.itemsize, profile)
    bindings = bindings_of(spec, source.tensors)
    recording = decoder_recording(
        spec, shapes, bindings, NAMES[dtype], limits, settled.resolved.config
    )
    eager = EagerOps(profile)
    library = eager.register()
    constants = constants_of(spec)

    def make(tensors: Mapping[str, Tensor]) -> Run:
        module.assign({name: tensors[name] for name in shapes})
        for name in constants:
            setattr(module, name, tensors[name])
        caches = [tensors[slot.name] for slot in recording.cache]
        step = WRAPS[_mode(settled)](module)
        names = [name for name, _ in INPUTS]

        def run(descriptor: Descriptor, inputs: Mapping[str, Tensor]) -> Tensor:
            eager.uniform = descriptor.uniform
            return torch.as_tensor(step(*(inputs[name] for name in names), caches))

        run.library = library  # type: ignore[attr-defined]  # the operators go with it
        return run

    return Subject(recording, make, constants)


def _module(settled: Settled, profile: DeviceProfile) -> Subject:
    source = settled.request.source
    if source.factory is None:
        raise ConfigError(f"{source.name} names no factory")
    if wide := [str(shape) for shape in source.shapes if any(d.dynamic for d in shape.dims)]:
        raise ConfigError(
            "a recorded module has inputs of one size",
            f"these have several: {', '.join(wide)}",
            "give each --shape one size, or use --compile vcc",
        )
    dtype = _dtype(settled)
    module = converted(build_module(source.factory), dtype).requires_grad_(False)
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    # Weights are in no artifact. What is no number to compute with (an index, a count) is: random
    # bits in its place would lead a kernel astray while the recording is proven.
    saved = module.state_dict()
    constant = {n for n, one in state.items() if n not in saved or not one.is_floating_point()}
    weights = tuple(
        Slot(
            name,
            Role.CONSTANT if name in constant else Role.WEIGHT,
            NAMES[one.dtype],
            tuple(one.shape),
        )
        for name, one in state.items()
    )
    inputs = [
        Slot(s.name, Role.INPUT, s.dtype or NAMES[dtype], tuple(d.low for d in s.dims))
        for s in source.shapes
    ]
    output = _output_of(module, inputs)
    recording = Recording(placed(weights), (), placed([*inputs, output]), (ONLY,))
    data = {name: _numpy(state[name]) for name in constant}

    def make(tensors: Mapping[str, Tensor]) -> Run:
        module.load_state_dict(
            {name: tensors[name] for name in module.state_dict()}, strict=True, assign=True
        )
        for name in dict(module.named_buffers()):
            _put(module, name, tensors[name])
        step = WRAPS[_mode(settled)](module)
        return lambda descriptor, given: torch.as_tensor(step(*(given[s.name] for s in inputs)))

    return Subject(recording, make, data)


def _output_of(module: nn.Module, inputs: list[Slot]) -> Slot:
    with torch.no_grad():
        found = module(*(torch.zeros(one.shape, dtype=DTYPES[one.dtype]) for one in inputs))
    if not isinstance(found, Tensor):
        raise ConfigError(
            "a recorded module returns one tensor", f"this one returns {type(found).__name__}"
        )
    return Slot(OUTPUT, Role.OUTPUT, NAMES[found.dtype], tuple(found.shape))


def _put(module: nn.Module, name: str, data: Tensor) -> None:
    owner, _, leaf = name.rpartition(".")
    setattr(module.get_submodule(owner), leaf, data)


def _numpy(tensor: Tensor) -> Any:
    """Its bytes as an array of the same shape; bfloat16 as bits."""
    plain = tensor.detach().cpu().contiguous()
    return (plain.view(torch.int16) if plain.dtype is torch.bfloat16 else plain).numpy()


def _dtype(settled: Settled) -> torch.dtype:
    if settled.model.dtype is None:
        raise ConfigError("the request has no dtype", "it was not settled")
    return DTYPES[settled.model.dtype.torch_name]


def _mode(settled: Settled) -> CompileMode:
    return settled.resolved.config.mode or CompileMode.NO_COMPILATION
