"""One forward of a plain module on made-up inputs: shows that its artifact boots and computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from vcc.engine.config.artifacts import Loader
from vcc.engine.models.shapes import InputShape
from vcc.engine.monitor import rounded
from vcc.engine.session import Session, open_module_session

if TYPE_CHECKING:
    import torch

    from vcc.engine.runtime.boot import BootedModule
    from vcc.engine.runtime.player.forward import Found


@dataclass(frozen=True, slots=True)
class Output:
    """One output: torch's name of its dtype, its shape, the SHA-256 of its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str

    @classmethod
    def of(cls, name: str, value: torch.Tensor) -> Output:
        """What is said of a tensor."""
        from vcc.engine.tensor_bytes import tensor_bytes  # which brings torch

        dtype = str(value.dtype).removeprefix("torch.")
        digest = sha256(tensor_bytes(value).tobytes())
        return cls(name, dtype, tuple(value.shape), digest.hexdigest())

    @classmethod
    def found(cls, name: str, one: Found) -> Output:
        """What is said of an output of a player, without torch."""
        return cls(name, one.dtype, one.shape, sha256(one.data.tobytes()).hexdigest())


@dataclass(frozen=True, slots=True)
class ModuleReport:
    """What the forward gave, and the account of the run; fields as in `RunReport`.

    `lacking` is no part of the JSON: it says whether recording matrix products is worth it.
    """

    artifact: str | None
    outputs: tuple[Output, ...]
    phases: Mapping[str, float]
    seconds: float
    counters: Mapping[str, object]
    notes: tuple[str, ...]
    lacking: bool = False

    def as_dict(self) -> dict[str, object]:
        """The JSON of `--json` and `--report`."""
        names = ("name", "dtype", "shape", "sha256")
        return {
            "artifact": self.artifact,
            "outputs": [{name: getattr(one, name) for name in names} for one in self.outputs],
            "phases": rounded(self.phases),
            "seconds": round(self.seconds, 6),
            "counters": dict(self.counters),
            "notes": list(self.notes),
        }


def run_module(session: Session) -> ModuleReport:
    """Boot a module's artifact (or build it) and run it once.

    Inputs have the largest declared sizes; floats are drawn with seed 0, integers are zeros.

    Raises:
        MissingArtifact, IntegrityError, CompileError: see `open_session`.
    """
    ready = open_module_session(session)
    settled = session.settled
    dtype = "float32" if settled.model.dtype is None else settled.model.dtype.torch_name
    with session.ledger.phase("forward"):
        outputs = _outputs(ready.booted, settled.request.source.shapes, dtype)
    phases, seconds = session.ledger.account()
    counters = session.counters.as_dict()
    lacking = ready.booted.lacking
    return ModuleReport(ready.artifact, outputs, phases, seconds, counters, session.notes, lacking)


def _outputs(booted: BootedModule, shapes: Sequence[InputShape], dtype: str) -> tuple[Output, ...]:
    if booted.loader is Loader.PLAYER:
        from vcc.engine.runtime.player.forward import PlayedForward
        from vcc.engine.runtime.player.host_values import drawn

        if isinstance(booted.forward, PlayedForward):
            made = {
                one.name: drawn(one.dtype or dtype, tuple(dim.high for dim in one.dims))
                for one in shapes
            }
            given = booted.forward.run(made)
            return tuple(Output.found(name, one) for name, one in given.items())
    inputs = {one.name: _input(one, dtype) for one in shapes}
    found = booted.forward(inputs)
    return tuple(Output.of(name, value) for name, value in found.items())


def _input(shape: InputShape, dtype: str) -> torch.Tensor:
    import torch

    kind = getattr(torch, shape.dtype or dtype)
    sizes = [dim.high for dim in shape.dims]
    if not kind.is_floating_point:
        return torch.zeros(sizes, dtype=kind)
    generator = torch.Generator().manual_seed(0)
    return torch.randn(sizes, generator=generator).to(kind)
