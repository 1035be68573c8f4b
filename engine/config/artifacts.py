"""What an artifact holds and who boots it, for each compile mode and platform, as one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from .modes import CompileMode, GraphMode, Platform


class Content(Enum):
    """A kind of thing that an artifact holds."""

    BINDINGS = "manifest and bindings"
    PIECES = "compiled pieces"
    NODE_TABLE = "node tables"
    CUBINS = "cubins"


class Loader(Enum):
    """Who turns an artifact into a running step."""

    TORCH = "TorchLoader"
    PLAYER = "Player"
    EAGER = "EagerLoader"
    IN_PROCESS = "compiled in process"


@dataclass(frozen=True, slots=True)
class ArtifactRule:
    """One cell of the artifact table.

    Args:
        holds: contents of the artifact; empty when nothing can be stored.
        booted_by: loader of a step with full graphs.
        without_full: loader of a graph mode without full graphs.
        needs_gpu: True when the build must run on the device it builds for.
        refusal: why `compile` refuses; empty when it does not.
        hint: what to do after a refusal.
    """

    holds: tuple[Content, ...]
    booted_by: Loader
    without_full: Loader
    needs_gpu: bool = False
    refusal: str = ""
    hint: str = ""

    def loader(self, graphs: GraphMode) -> Loader:
        """The loader for a graph mode; what is recorded in parts is played too."""
        parts = self.needs_gpu and graphs.uses(GraphMode.PIECEWISE)
        played = parts or graphs.uses(GraphMode.FULL)
        return self.booted_by if played else self.without_full


_PIECES_CPU = ArtifactRule(
    (Content.BINDINGS, Content.PIECES, Content.NODE_TABLE), Loader.TORCH, Loader.TORCH
)
_PIECES_CUDA = ArtifactRule(
    (Content.BINDINGS, Content.NODE_TABLE, Content.CUBINS), Loader.PLAYER, Loader.PLAYER
)
_RECORDED = (Content.BINDINGS, Content.NODE_TABLE, Content.CUBINS)

ARTIFACT_TABLE: Mapping[tuple[CompileMode, Platform], ArtifactRule] = {
    (CompileMode.VCC_COMPILE, Platform.CPU): _PIECES_CPU,
    (CompileMode.VCC_COMPILE, Platform.CUDA): _PIECES_CUDA,
    (CompileMode.DYNAMO_TRACE_ONCE, Platform.CPU): _PIECES_CPU,
    (CompileMode.DYNAMO_TRACE_ONCE, Platform.CUDA): _PIECES_CUDA,
    (CompileMode.NO_COMPILATION, Platform.CPU): ArtifactRule(
        (Content.BINDINGS,), Loader.EAGER, Loader.EAGER
    ),
    (CompileMode.NO_COMPILATION, Platform.CUDA): ArtifactRule(
        _RECORDED, Loader.PLAYER, Loader.EAGER, needs_gpu=True
    ),
    (CompileMode.STOCK_TORCH_COMPILE, Platform.CPU): ArtifactRule(
        (),
        Loader.IN_PROCESS,
        Loader.IN_PROCESS,
        refusal="stock torch.compile keeps its code in Inductor's own cache, which is pickle",
        hint="`vcc run --compile stock` compiles in process; use --compile vcc for an artifact",
    ),
    (CompileMode.STOCK_TORCH_COMPILE, Platform.CUDA): ArtifactRule(
        (Content.NODE_TABLE, Content.CUBINS), Loader.PLAYER, Loader.IN_PROCESS, needs_gpu=True
    ),
}


def artifact_rule(mode: CompileMode, platform: Platform) -> ArtifactRule:
    """The rule for a compile mode on a platform; defined for every pair."""
    return ARTIFACT_TABLE[mode, platform]
