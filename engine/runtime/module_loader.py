"""Loaders for a factory's module: its pieces by TorchLoader, or the module itself eagerly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from vcc.cache.digest import Digest
from vcc.cache.errors import IntegrityError, MissingArtifact, ModelError
from vcc.engine.graphs.dtypes import DTYPES
from vcc.engine.graphs.program import Program
from vcc.engine.models.build_module import made_by
from vcc.engine.models.checkpoint_forward import CheckpointRef
from vcc.engine.models.converted import converted
from vcc.engine.models.expression_text import parse
from vcc.engine.models.expressions import FromTensor
from vcc.engine.models.training_mode import training_note
from vcc.engine.models.weights import load_weights
from vcc.engine.runtime.binding import Binder
from vcc.engine.runtime.forward import Forward, ForwardRunner, RangedForward, RangeRunner
from vcc.engine.runtime.memory import Room, StepMemory
from vcc.engine.runtime.settings import Boot
from vcc.engine.runtime.stock import stock_compiled
from vcc.engine.runtime.torch_loader import constants_of_artifact, open_program
from vcc.engine.runtime.turn import Turn
from vcc.engine.tensor_bytes import tensor_bytes


class WeightsContent(MissingArtifact):
    """Constants that were computed at build time are not those of this model: a miss."""

    id = "WEIGHTS_CONTENT"


def load_module_pieces(boot: Boot) -> Forward:
    """A runner over the compiled pieces of a module."""
    found = open_program(boot, _weights, lambda symbol: True)
    with boot.ledger.phase("pieces"):
        room, turn, first = Room(), Turn(), found.programs[0].program
        highest = {
            symbol.name: max(one.program.symbols[i].high for one in found.programs)
            for i, symbol in enumerate(first.symbols)
        }
        runners = []
        for one in found.programs:
            memory = StepMemory(one.program, found.given, highest, room)
            binder = Binder(one.program, memory, found.pieces, found.ops)
            runner = ForwardRunner(one.program, memory, binder, turn)
            runners.append(RangeRunner(one.low, one.high, runner))
        return runners[0].runner if len(runners) == 1 else RangedForward(tuple(runners))


def load_module_eager(boot: Boot) -> Forward:
    """The module itself; its outputs are fresh tensors."""
    with boot.ledger.phase("weights"):
        return forward_of(_module(boot))


def load_module_stock(boot: Boot) -> Forward:
    """`torch.compile` of the module; it compiles at the first call, and anew where it must."""
    boot.events.note("stock torch.compile compiles in this process, nothing of it is stored")
    boot.counters.add("compiles")
    with boot.ledger.phase("weights"):
        return forward_of(stock_compiled(_module(boot), boot.settings.compilation))


def forward_of(module: torch.nn.Module, state: Mapping[str, torch.Tensor] | None = None) -> Forward:
    """The forward of a user's module: tensors by name in, `output_<n>` out.

    Args:
        module: the module.
        state: parameters and buffers to use in place of its own.

    Raises:
        ModelError: when it is called: the module failed, or gave something that is no tensor.
    """

    def forward(
        inputs: Mapping[str, torch.Tensor], *, copy: bool = False
    ) -> dict[str, torch.Tensor]:
        try:
            with torch.no_grad():
                if state is None:
                    result = module(**inputs)
                else:
                    result = torch.func.functional_call(module, dict(state), (), dict(inputs))
        except Exception as error:  # code of the user's
            raise ModelError("the module failed", f"{type(error).__name__}: {error}") from error
        leaves = result if isinstance(result, (list, tuple)) else [result]
        found = {f"output_{index}": _tensor(leaf, index) for index, leaf in enumerate(leaves)}
        return {name: one.clone() for name, one in found.items()} if copy else found

    return forward


def _tensor(leaf: object, index: int) -> torch.Tensor:
    if not isinstance(leaf, torch.Tensor):
        raise ModelError(
            f"output {index} of the module is no tensor",
            f"it is a {type(leaf).__name__}",
            "return a tensor, or a list or tuple of tensors",
        )
    return leaf


def _dtype(boot: Boot) -> torch.dtype:
    dtype = boot.settings.model.dtype
    if dtype is None:
        raise IntegrityError("the manifest has no dtype")
    return DTYPES[dtype.torch_name]


def _module(boot: Boot) -> torch.nn.Module:
    if boot.source.factory is None:
        raise ModelError(f"{boot.source.name} names no factory")
    if isinstance(boot.source.factory, CheckpointRef):
        from vcc.engine.models.transformers.forward import forward_module  # eager modes only

        names = [shape.name for shape in boot.source.shapes]
        made = forward_module(boot.source.factory, _dtype(boot), names)
        return made.assign(_bound(boot))
    module = made_by(boot.source.factory)
    if told := training_note(module):
        boot.events.note(told)
    module = converted(module.eval(), _dtype(boot))
    if boot.source.tensors:
        own = module.state_dict()
        found = _from_file(boot, list(own))
        for name, tensor in own.items():
            _check_weight(name, found[name], tensor.dtype, list(tensor.shape))
        module.load_state_dict(found)
    return module


def _from_file(boot: Boot, names: list[str]) -> dict[str, torch.Tensor]:
    missing = [name for name in names if name not in boot.source.tensors]
    if missing:
        raise ModelError(
            "the weights are not those of the module",
            f"missing: {', '.join(missing[:5])}",
            "save its state_dict() with safetensors",
        )
    bindings = {name: FromTensor(name) for name in names}
    return load_weights(bindings, boot.source.tensors, _dtype(boot))[0]


def _bound(boot: Boot) -> dict[str, torch.Tensor]:
    """Weights of a model in a directory, by the artifact's bindings."""
    texts = boot.loaded.manifest.info.get("bindings")
    if not isinstance(texts, dict):
        raise IntegrityError("the manifest has no bindings")
    bindings = {name: parse(text) for name, text in texts.items()}
    weights, ledger = load_weights(bindings, boot.source.tensors, _dtype(boot))
    boot.events.note(
        f"weights: {ledger.bytes_viewed} bytes viewed in place, {ledger.bytes_copied} copied"
    )
    return weights


def own_module(boot: Boot) -> torch.nn.Module:
    """The module with its weights: from a safetensors file when one is given, else its own.

    Raises:
        ModelError: the factory fails, or the file has other weights.
    """
    return _module(boot)


def state_of(boot: Boot) -> dict[str, torch.Tensor]:
    """The module's state: from a safetensors file when one is given, else what the factory makes.

    Raises:
        ModelError: the factory fails, or the file has other weights.
    """
    return {name: one.detach().contiguous() for name, one in _module(boot).state_dict().items()}


def _weights(boot: Boot, program: Program) -> dict[str, torch.Tensor]:
    """From a safetensors file when one is given, else those that the factory makes."""
    values = program.of_role("weight")
    names = [value.target for value in values]
    if boot.source.is_checkpoint:
        found = _bound(boot)
    elif boot.source.tensors:
        found = _from_file(boot, names)
    else:
        module = _module(boot)
        found = {k: v.contiguous() for k, v in module.state_dict().items()}
        _check_constants(boot, program, module)
    if missing := [name for name in names if name not in found]:
        raise ModelError(f"the module has no parameter {missing[0]}", "its code has changed")
    for value in values:
        _check_weight(value.target, found[value.target], DTYPES[value.dtype], value.shape)
    return {value.name: found[value.target] for value in values}


def _check_constants(boot: Boot, program: Program, module: torch.nn.Module) -> None:
    """Refuse an artifact whose constants are not those that the factory computes now.

    Source and shapes are in the key; what a factory reads from elsewhere is not.
    """
    own = dict(module.named_buffers())
    stored = constants_of_artifact(boot, program)
    for one in program.of_role("constant"):
        buffer, constant = own.get(one.target), stored[one.name]
        if buffer is not None and _digest(buffer) != _digest(constant):
            raise other_content(boot, one.target)


def other_content(boot: Boot, buffer: str) -> WeightsContent:
    """What is said of a buffer that was computed at build time and is another one now."""
    return WeightsContent(
        f"the artifact is of another content of {boot.source.name}",
        f"buffer {buffer} is not what it was when it was built, and its source is",
        "vcc cache rm the artifact and build again, or keep the buffer in the state_dict()",
    )


def _digest(data: torch.Tensor) -> Digest:
    return Digest.of(tensor_bytes(data).tobytes())


def _check_weight(name: str, found: torch.Tensor, dtype: torch.dtype, shape: Sequence[Any]) -> None:
    """Refuse weights of another model before they could be taken for a damaged artifact."""
    if (found.dtype, list(found.shape)) != (dtype, list(shape)):
        raise ModelError(
            "the weights are not those of the module",
            f"{name} is {found.dtype} {list(found.shape)}, the module takes {dtype} {list(shape)}",
            "give its own state_dict(), saved with safetensors",
        )
