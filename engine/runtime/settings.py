"""What a manifest says about the step it boots: limits, graph mode, KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vcc.cache.errors import IntegrityError
from vcc.cache.loaded import Loaded
from vcc.cache.manifest import Manifest
from vcc.engine.config.kv_memory import DEFAULT_KV_MEMORY, KvMemory
from vcc.engine.config.modes import CompileMode, GraphMode
from vcc.engine.config.parse import parse_config, parse_model
from vcc.engine.config.types import CompilationConfig, ModelConfig
from vcc.engine.events import Events
from vcc.engine.models.source import Source
from vcc.engine.monitor import Counters, Ledger
from vcc.engine.runtime.descriptors import lora_counts


@dataclass(frozen=True, slots=True)
class Play:
    """What a run says about graphs; None where it says nothing and the artifact decides.

    Attributes:
        mode: which steps run as graphs.
        sizes: tokens of the steps that have graphs.
        usual: sizes for a mode with graphs where the artifact was made without any.
    """

    mode: GraphMode | None = None
    sizes: tuple[int, ...] | None = None
    usual: tuple[int, ...] = ()


AS_MADE = Play()


@dataclass(frozen=True, slots=True)
class Settings:
    """The artifact's own configuration, and the blocks that this run wants."""

    model: ModelConfig
    compilation: CompilationConfig
    lengths: tuple[int, ...]
    kv_memory: KvMemory = DEFAULT_KV_MEMORY

    @property
    def block_size(self) -> int:
        """Tokens of a KV block."""
        return self.model.block_size or 1

    @property
    def max_blocks_per_seq(self) -> int:
        """Width of the block table."""
        return -(-(self.model.max_model_len or 1) // self.block_size)

    @property
    def max_seqs(self) -> int:
        """Most sequences of a step."""
        return self.model.max_num_seqs or 1

    @property
    def lora_cases(self) -> tuple[int, ...]:
        """Numbers of active adapters that have graphs of their own."""
        specialise = self.compilation.cudagraph_specialize_lora is True
        return lora_counts(self.model.max_loras or 0, specialise=specialise)

    def playing(self, play: Play) -> Settings:
        """With the graphs that a run asks for, where the artifact holds steps of every size."""
        own, said = self.compilation, (play.mode, play.sizes) != (None, None)
        if not said or own.mode is not CompileMode.VCC_COMPILE:
            return self
        sizes = own.capture_sizes if play.sizes is None else play.sizes
        if not sizes:
            most = self.model.max_num_batched_tokens or 1
            sizes = tuple(size for size in play.usual if size <= most)
        mode = own.cuda_graph_mode if play.mode is None else play.mode
        # Steps of an exact size may be padded to these graphs: its code is then taken by none.
        graphs = replace(own, cuda_graph_mode=mode, capture_sizes=sizes, compile_sizes=())
        return replace(self, compilation=graphs)

    def num_blocks(self, block_bytes: int, memory: int) -> int:
        """Blocks of the KV cache: what the sequences to come need, within `memory` bytes.

        Args:
            block_bytes: bytes of one block over all layers.
            memory: bytes that the cache may take.
        """
        affordable = max(memory // block_bytes, self.max_blocks_per_seq)
        return max(1, min(self.wanted_blocks, affordable))

    @property
    def wanted_blocks(self) -> int:
        """Blocks that the sequences to come need at most, or the most that a step can use."""
        most = self.max_seqs * self.max_blocks_per_seq
        return min(sum(self._blocks(length) for length in self.lengths) or most, most)

    def _blocks(self, length: int) -> int:
        return min(-(-length // self.block_size), self.max_blocks_per_seq)


@dataclass(frozen=True, slots=True)
class Boot:
    """Everything a loader works with.

    Attributes:
        site: root of the store of matrix products.
        unsigned: whether code that bears no signature may be used, as that store's.
    """

    loaded: Loaded
    source: Source
    settings: Settings
    golden: str
    ledger: Ledger
    counters: Counters
    events: Events
    site: Path | None = None
    unsigned: bool = True


def boot_settings(
    manifest: Manifest, lengths: Sequence[int], kv_memory: KvMemory = DEFAULT_KV_MEMORY
) -> Settings:
    """Read the configuration back from a manifest.

    Raises:
        IntegrityError: it is not there or not valid.
    """
    try:
        model = parse_model(_object(manifest.info, "model"))
        compilation = parse_config(_object(manifest.info, "compilation"))
    except ValueError as error:
        raise IntegrityError("the manifest's configuration is refused", str(error)) from error
    return Settings(model, compilation, tuple(lengths), kv_memory)


def overruled_lines(manifest: Manifest) -> tuple[str, ...]:
    """What the build found out of the graph against its request, a line each; to be told.

    Raises:
        IntegrityError: they are no lines.
    """
    found = manifest.info.get("overruled", [])
    if not isinstance(found, list) or not all(isinstance(line, str) for line in found):
        raise IntegrityError("the manifest's configuration is refused", "overruled is no text")
    return tuple(found)


def _object(info: dict[str, Any], name: str) -> dict[str, Any]:
    found = info.get(name)
    if not isinstance(found, dict):
        raise IntegrityError(f"the manifest has no {name} configuration")
    return found
