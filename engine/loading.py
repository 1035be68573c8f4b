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
from vcc.engine.adapters import load_adapters
from vcc.engine.config.environment import kept_environment
from vcc.engine.config.kv_memory import DEFAULT_KV_MEMORY, KvMemory
from vcc.engine.config.parse import as_config, parse_model
from vcc.engine.config.types import CompilationConfig, ParallelConfig
from vcc.engine.log_events import told_of
from vcc.engine.models.source import Source, open_source
from vcc.engine.monitor import Counters, Ledger
from vcc.engine.request import BuildRequest, settle
from vcc.engine.runtime.no_adapters import no_adapters
from vcc.engine.runtime.placed import adapters_in
from vcc.engine.session import Session, open_session
from vcc.engine.targets import choose_target

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from vcc.engine.runtime.batch import StepBatch, StepLimits
    from vcc.engine.runtime.boot import Runner
    from vcc.engine.runtime.generate import TokenEvent
    from vcc.engine.runtime.requests import Request
    from vcc.engine.serving import Serving


GOLDEN = ("off", "one", "all")


@dataclass(frozen=True, slots=True)
class Model:
    """A booted decoder; one step at a time, from any thread.

    Attributes:
        runner: what runs its steps.
        artifact: id of the artifact; None when it was built here and not stored.
        source: the model's configuration, tokenizer and generation defaults.
        counters: what the boot did: hits, restores, compiles.
    """

    runner: Runner
    artifact: str | None
    source: Source
    counters: Counters

    @property
    def limits(self) -> StepLimits:
        """What one step and the KV cache hold."""
        return self.runner.limits

    def step(self, batch: StepBatch) -> torch.Tensor | npt.NDArray[np.floating]:
        """Run one step.

        Returns:
            Logits [B, vocab] of the batch's sequences, valid until the next step: a tensor in the
            model's dtype where torch runs it, on a GPU an array in the host's memory.

        Raises:
            UsageError: the batch is out of bounds, or another step is under way.
            DeviceError: the device is lost, or this process was forked after the load.
        """
        return self.runner.step(batch)

    def generate(self, requests: Sequence[Request]) -> Iterator[TokenEvent]:
        """Answer requests with continuous batching, token by token; all are known at the start.

        Raises:
            UsageError: a prompt is empty, too long or not of the vocabulary.
        """
        from vcc.engine.runtime.generate import generate

        return generate(self.runner, requests)

    def serving(self) -> Serving:
        """Answer prompts that come while others are answered; see `Serving`."""
        from vcc.engine.serving import Serving

        return Serving(self.runner, self.source)

    def trim(self, keep: int = 0) -> int:
        """Give back a GPU's memory of KV blocks that no request under way holds.

        It comes back by itself when requests need it. Memory comes in chunks, and only what lies
        behind the last block in use can go.

        Args:
            keep: blocks from the first that keep their contents, for steps of your own.

        Returns:
            Bytes given back.

        Raises:
            UsageError: a step is under way, or the model has no such memory.
        """
        found = getattr(self.runner, "trim", None)
        if found is None:
            raise UsageError(
                "the KV cache of this model cannot be trimmed",
                "it runs on the CPU, or its graphs were recorded",
                "a GPU artifact of --compile vcc can",
            )
        return int(found(keep))

    @property
    def loras(self) -> tuple[str, ...]:
        """Names of the adapters that are loaded."""
        adapters = adapters_in(self.runner)
        return () if adapters is None else adapters.names

    def load_lora(self, name: str, directory: Path | str) -> None:
        """Load an adapter; requests name it. Nothing is built anew.

        Raises:
            UsageError: the name is taken, the code has no place for adapters, or a step runs.
            ModelError: the adapter is malformed, not supported, or not of this model.
        """
        load_adapters(self.runner, [(name, Path(directory))])

    def unload_lora(self, name: str) -> None:
        """Forget an adapter.

        Raises:
            UsageError: no such adapter, it has requests under way, or a step runs.
        """
        adapters = adapters_in(self.runner)
        if adapters is None:
            raise no_adapters()
        adapters.unload(name)

    @property
    def io(self) -> Mapping[str, Any]:
        """Inputs, outputs and states on the device, as DLPack and CUDA array interface.

        Raises:
            UsageError: the model runs on the CPU.
        """
        found = getattr(self.runner, "io", None)
        if not isinstance(found, dict):
            raise UsageError(
                "the model has no device buffers", "it runs on the CPU", "use what step() returns"
            )
        return found


def load(
    model: str,
    *,
    target: str | None = None,
    cache_dir: Path | None = None,
    kv_memory: str | None = None,
    require_warm: bool = False,
    require_exact: bool = False,
    golden: str = "one",
    weights: str | None = None,
    compilation: CompilationConfig | Mapping[str, Any] | None = None,
    lengths: Sequence[int] = (),
    dtype: str | None = None,
    kv_cache_dtype: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    max_model_len: int | None = None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    block_size: int | None = None,
    enable_lora: bool = False,
    max_loras: int | None = None,
    max_lora_rank: int | None = None,
    lora_target_modules: Sequence[str] | None = None,
    monitor: Ledger | None = None,
    counters: Counters | None = None,
) -> Model:
    """Boot a decoder; without an artifact in the store it is built first.

    Args:
        model: demo, a directory or a Hugging Face id.
        target: such as "cpu" or "sm_90"; None takes this machine's GPU if there is one.
        cache_dir: the store; None where the settings say.
        kv_memory: most memory of a GPU's KV cache: "20GiB", or "0.9" of what is free.
        require_warm: a miss is an error.
        require_exact: an artifact answers only if a build here would make just that.
        golden: "off", "one" or "all": which pieces are checked at boot.
        weights: a directory to read weights from; None for the model's own.
        compilation: a configuration, or its fields as in docs/config.md.
        lengths: tokens of the sequences to come, to size the KV cache; empty takes the most that
            a step can use.
        dtype: "fp32", "bf16" or "fp16"; None takes the checkpoint's.
        kv_cache_dtype: "fp8", or "auto": as the checkpoint says, else `dtype`; None is "auto".
        revision: branch, tag or commit of a Hugging Face id.
        trust_remote_code: take a checkpoint that has code of its own, which is not run.
        max_model_len: most tokens of a sequence, prompt and answer.
        max_num_seqs, max_num_batched_tokens: most sequences and tokens of a step.
        block_size: tokens of a KV block.
        enable_lora: code into which adapters can be loaded; without it any artifact answers.
        max_loras: adapters that a step can hold.
        max_lora_rank: largest rank of an adapter.
        lora_target_modules: projections that adapters may change; None means all.
        monitor: told of the time and memory of every stage.
        counters: counts for several models together.

    Raises:
        UsageError: the model is a plain module.
        ConfigError, ModelError, MissingArtifact, IntegrityError, CompileError, DeviceError: as the
            commands.
    """
    said = {
        "revision": revision,
        "dtype": dtype,
        "kv_cache_dtype": kv_cache_dtype,
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_batched_tokens,
        "block_size": block_size,
        "enable_lora": enable_lora or None,
        "max_loras": max_loras,
        "max_lora_rank": max_lora_rank,
        "lora_target_modules": None if lora_target_modules is None else list(lora_target_modules),
    }
    if golden not in GOLDEN:
        raise UsageError(f'unknown golden "{golden}"', "", f"known: {', '.join(GOLDEN)}")
    config = as_config(compilation)
    source = open_source(
        model, revision=revision, weights=weights, trust_remote_code=trust_remote_code
    )
    _check_decoder(source)
    request = BuildRequest(
        source=source,
        model=parse_model({**said, "source": model}),
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
        told_of(monitor),
        Ledger() if monitor is None else monitor,
        Counters() if counters is None else counters,
        kv_memory=DEFAULT_KV_MEMORY if kv_memory is None else KvMemory.parse(kv_memory),
        exact=require_exact,
    )
    with kept_environment():
        ready = open_session(session, lengths)
    return Model(ready.booted.runner, ready.artifact, source, session.counters)


def _check_decoder(source: Source) -> None:
    if source.kind != "decoder":
        raise UsageError(
            f"{source.name} is a plain module",
            "vcc.load boots decoders, which run in steps",
            "vcc.load_forward makes a callable of it; vcc.compile(module) one of a module at hand",
        )
