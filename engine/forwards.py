"""load_forward: an encoder or a vision model as a function of tensors, from Python.

encoder = vcc.load_forward("path/to/all-MiniLM-L6-v2")
hidden = encoder({"input_ids": ids, "attention_mask": mask, "token_type_ids": types})["output_0"]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcc.cache.errors import UsageError
from vcc.cache.store import Store
from vcc.engine.config.environment import kept_environment
from vcc.engine.config.parse import as_config, parse_model
from vcc.engine.config.types import CompilationConfig, ParallelConfig
from vcc.engine.log_events import LogEvents
from vcc.engine.models.source import Source, open_source
from vcc.engine.monitor import Counters
from vcc.engine.request import BuildRequest, settle
from vcc.engine.session import Session, open_module_session
from vcc.engine.targets import choose_target

if TYPE_CHECKING:
    from vcc.engine.runtime.forward import Forward


@dataclass(frozen=True, slots=True)
class ForwardModel:
    """A booted plain forward.

    Attributes:
        forward: what runs it.
        artifact: id of the artifact; None when it was built here and not stored.
        source: its configuration, tokenizer and declared inputs.
        counters: what the boot did: hits, restores, compiles.
        copy: whether outputs are new tensors.
    """

    forward: Forward
    artifact: str | None
    source: Source
    counters: Counters
    copy: bool = True

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run once.

        Args:
            inputs: a dense CPU tensor for each declared input, by name; on a GPU a numpy array
                does as well.

        Returns:
            `output_0`, `output_1`, … in the model's order: new ones, or with `copy=False` on a CPU
            views that the next call overwrites.

        Raises:
            UsageError: an input is missing, unknown, or of another dtype or shape than declared;
                or another call is under way.
        """
        names = list(inputs) if isinstance(inputs, Mapping) else [inputs]
        if wrong := [type(one).__name__ for one in names if not isinstance(one, str)]:
            raise UsageError(
                f"inputs are given by name, not by {wrong[0]}",
                hint='give a dict: {"input_ids": ...}',
            )
        return self.forward(inputs, copy=self.copy)


def load_forward(
    model: str,
    *,
    shapes: Sequence[str] = (),
    cache_dir: Path | None = None,
    require_warm: bool = False,
    require_exact: bool = False,
    golden: str = "one",
    weights: str | None = None,
    compilation: CompilationConfig | Mapping[str, Any] | None = None,
    dtype: str | None = None,
    target: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    counters: Counters | None = None,
    copy: bool = True,
) -> ForwardModel:
    """Boot an encoder, a vision model or a factory's module; one that is not stored is built.

    Args:
        model: a directory, a Hugging Face id, or `package.module:factory`.
        shapes: its inputs, `name=8x128` or `name=1-8x128:int64`; empty takes those that the config
            of a directory means.
        cache_dir: the store; None where the settings say.
        require_warm: a miss is an error.
        require_exact: an artifact answers only if a build here would make just that.
        golden: "off", "one" or "all": which pieces are checked at boot.
        weights: a directory or file to read weights from; None for the model's own.
        compilation: a configuration, or its fields as in docs/config.md.
        dtype: "fp32" or "bf16"; None takes the checkpoint's.
        target: such as "cpu" or "sm_90"; None is the CPU.
        revision: branch, tag or commit of a Hugging Face id.
        trust_remote_code: take a checkpoint that has code of its own, which is not run.
        counters: counts for several models together.
        copy: give new tensors; False gives views that the next call overwrites (on a CPU).

    Raises:
        UsageError: the model is a decoder.
        ConfigError, ModelError, MissingArtifact, IntegrityError, CompileError, DeviceError: as the
            commands.
    """
    config = as_config(compilation)
    source = open_source(
        model,
        revision=revision,
        weights=weights,
        trust_remote_code=trust_remote_code,
        shapes=shapes,
    )
    if source.kind == "decoder":
        raise UsageError(f"{model} is a decoder", "it runs in steps", f'vcc.load("{model}")')
    request = BuildRequest(
        source=source,
        model=parse_model({"source": model, "dtype": dtype, "revision": revision}),
        compilation=config,
        parallel=ParallelConfig(),
        target=choose_target(target, source.kind, config),
        weights=weights,
    )
    counted = Counters() if counters is None else counters
    store, settled = Store.open(cache_dir), settle(request)
    session = Session(
        settled, store, golden, require_warm, LogEvents(), counters=counted, exact=require_exact
    )
    with kept_environment():
        ready = open_module_session(session)
    return ForwardModel(ready.booted.forward, ready.artifact, source, counted, copy)
