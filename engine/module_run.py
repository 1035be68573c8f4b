"""One forward of a plain module on made-up inputs: shows that its artifact boots and computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from vcc.engine.models.shapes import InputShape
from vcc.engine.monitor import rounded
from vcc.engine.session import Session, open_module_session

if TYPE_CHECKING:
    import torch


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
        import torch

        data = value.detach().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
        dtype = str(value.dtype).removeprefix("torch.")
        return cls(name, dtype, tuple(value.shape), sha256(data).hexdigest())


@dataclass(frozen=True, slots=True)
class ModuleReport:
    """What the forward gave, and the account of the run; fields as in `RunReport`."""

    artifact: str | None
    outputs: tuple[Output, ...]
    phases: Mapping[str, float]
    seconds: float
    counters: Mapping[str, object]
    notes: tuple[str, ...]

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
        inputs = {one.name: _input(one, dtype) for one in settled.request.source.shapes}
        found = ready.booted.forward(inputs)
    outputs = tuple(Output.of(name, value) for name, value in found.items())
    phases, seconds = session.ledger.account()
    counters = session.counters.as_dict()
    return ModuleReport(ready.artifact, outputs, phases, seconds, counters, session.notes)


def _input(shape: InputShape, dtype: str) -> torch.Tensor:
    import torch

    kind = getattr(torch, shape.dtype or dtype)
    sizes = [dim.high for dim in shape.dims]
    if not kind.is_floating_point:
        return torch.zeros(sizes, dtype=kind)
    generator = torch.Generator().manual_seed(0)
    return torch.randn(sizes, generator=generator).to(kind)
