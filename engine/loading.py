"""load: a model ready to step, from Python; the artifact comes from the store or is built.

model = vcc.load("demo", target="sm_90", max_num_seqs=16)
logits = model.step(batch)
tokens = torch.from_dlpack(model.io["token"])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcc.cache.errors import UsageError
from vcc.cache.store import Store
from vcc.engine.config.kv_memory import DEFAULT_KV_MEMORY, KvMemory
from vcc.engine.config.parse import parse_config, parse_model
from vcc.engine.config.types import ParallelConfig
from vcc.engine.models.source import open_source
from vcc.engine.request import BuildRequest, settle
from vcc.engine.session import Session, open_session
from vcc.engine.targets import choose_target

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from vcc.engine.runtime.batch import StepBatch, StepLimits
    from vcc.engine.runtime.boot import Runner
    from vcc.engine.runtime.generate import TokenEvent
    from vcc.engine.runtime.scheduler import Request


@dataclass(frozen=True, slots=True)
class Model:
    """A booted decoder.

    Attributes:
        runner: what runs its steps.
        artifact: id of the artifact; None when it was built here and not stored.
    """

    runner: Runner
    artifact: str | None

    @property
    def limits(self) -> StepLimits:
        """What one step and the KV cache hold."""
        return self.runner.limits

    def step(self, batch: StepBatch) -> torch.Tensor | npt.NDArray[np.floating]:
        """Run one step; logits [B, vocab], valid until the next one.

        Raises:
            UsageError: the batch is out of bounds, or another step is under way.
            DeviceError: the device is lost, or this process was forked after the load.
        """
        return self.runner.step(batch)

    def generate(self, requests: Sequence[Request]) -> Iterator[TokenEvent]:
        """Answer requests with continuous batching, token by token."""
        from vcc.engine.runtime.generate import generate

        return generate(self.runner, requests)

    @property
    def io(self) -> Mapping[str, Any]:
        """Inputs, outputs and states on the device, as DLPack and CUDA array interface.

        Raises:
            UsageError: the model runs on the CPU.
        """
        found = getattr(self.runner, "io", None)
        if not isinstance(found, dict):
            raise UsageError("the model has no device buffers", "it runs on the CPU")
        return found


def load(
    model: str,
    *,
    target: str | None = None,
    cache_dir: Path | None = None,
    kv_memory: str | None = None,
    require_warm: bool = False,
    golden: str = "one",
    weights: str | None = None,
    compilation: Mapping[str, Any] | None = None,
    lengths: Sequence[int] = (),
    **limits: Any,
) -> Model:
    """Boot a decoder; without an artifact in the store it is built first.

    Args:
        model: demo, a directory or a Hugging Face id.
        target: such as "cpu" or "sm_90"; None takes this machine's GPU if there is one.
        cache_dir: the store; None where the settings say.
        kv_memory: as `vcc run --kv-memory`.
        require_warm: a miss is an error.
        golden: "off", "one" or "all".
        weights: a directory to read weights from; None for the model's own.
        compilation: fields of `CompilationConfig`.
        lengths: tokens of the sequences to come, to size the KV cache.
        limits: dtype, revision, max_model_len, max_num_seqs, max_num_batched_tokens, block_size.

    Raises:
        ConfigError, ModelError, MissingArtifact, IntegrityError, CompileError, DeviceError: as the
            commands.
    """
    config = parse_config(dict(compilation or {}))
    source = open_source(model, revision=limits.get("revision"), weights=weights)
    request = BuildRequest(
        source=source,
        model=parse_model({**limits, "source": model}),
        compilation=config,
        parallel=ParallelConfig(),
        target=choose_target(target, source.kind, config),
        target_named=target is not None,
        weights=weights,
    )
    session = Session(
        settle(request),
        Store.open(cache_dir),
        golden,
        require_warm,
        kv_memory=DEFAULT_KV_MEMORY if kv_memory is None else KvMemory.parse(kv_memory),
    )
    ready = open_session(session, lengths)
    return Model(ready.booted.runner, ready.artifact)
