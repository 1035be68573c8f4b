"""The closed choices of the configuration: compile mode, graph mode, attention support, level."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntEnum


class CompileMode(IntEnum):
    """How code is made; the numbers are vLLM's."""

    NO_COMPILATION = 0
    STOCK_TORCH_COMPILE = 1
    DYNAMO_TRACE_ONCE = 2
    VCC_COMPILE = 3

    @property
    def has_pieces(self) -> bool:
        """True when the traced graph is cut at the splitting ops."""
        return self is CompileMode.VCC_COMPILE

    @property
    def rewrites(self) -> bool:
        """True when passes have a graph of ours to rewrite."""
        return self in (CompileMode.VCC_COMPILE, CompileMode.DYNAMO_TRACE_ONCE)

    @property
    def compiles(self) -> bool:
        """True when Inductor (or the chosen back end) makes code."""
        return self is not CompileMode.NO_COMPILATION


class GraphMode(Enum):
    """Which steps replay as a static graph.

    NONE, PIECEWISE and FULL are *plain*: one step runs in exactly one of them. The other two are
    pairs (decode part, mixed part) that a configuration chooses.
    """

    NONE = "none"
    PIECEWISE = "piecewise"
    FULL = "full"
    FULL_DECODE_ONLY = "full_decode_only"
    FULL_AND_PIECEWISE = "full_and_piecewise"

    @property
    def decode_part(self) -> GraphMode:
        """The plain mode of uniform decode steps."""
        return _PARTS.get(self.value, (self, self))[0]

    @property
    def mixed_part(self) -> GraphMode:
        """The plain mode of all other steps."""
        return _PARTS.get(self.value, (self, self))[1]

    @property
    def separates_decode(self) -> bool:
        """True when uniform decode has graphs of its own."""
        return self.value in _PARTS

    def uses(self, plain: GraphMode) -> bool:
        """True when one of the two parts is `plain`."""
        return plain in (self.decode_part, self.mixed_part)


_PARTS: dict[str, tuple[GraphMode, GraphMode]] = {
    "full_decode_only": (GraphMode.FULL, GraphMode.NONE),
    "full_and_piecewise": (GraphMode.FULL, GraphMode.PIECEWISE),
}


class AttentionSupport(IntEnum):
    """Which steps an attention back end can take inside one static graph."""

    NEVER = 0
    UNIFORM_SINGLE_TOKEN_DECODE = 1
    UNIFORM_BATCH = 2
    ALWAYS = 3

    @classmethod
    def weakest(cls, levels: Iterable[AttentionSupport]) -> AttentionSupport:
        """The support of a whole model: the minimum over its layers (ALWAYS when it has none)."""
        return min(levels, default=cls.ALWAYS)


class OptLevel(IntEnum):
    """`-O0` to `-O3`; a level fills only what the user left unset."""

    O0 = 0
    O1 = 1
    O2 = 2
    O3 = 3


class Backend(Enum):
    """Who turns a piece into code."""

    INDUCTOR = "inductor"
    EAGER = "eager"


class Platform(Enum):
    """Where a step runs."""

    CPU = "cpu"
    CUDA = "cuda"


class KvDtype(Enum):
    """Element type of the KV cache, where it is not the model's."""

    FP8 = "fp8"


class Dtype(Enum):
    """Element type of weights and activations."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"

    @property
    def torch_name(self) -> str:
        """Name of the same dtype in torch (and in Hugging Face configs)."""
        return {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}[self.value]
