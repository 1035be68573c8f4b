"""DecoderSpec: everything that decides a decoder's code, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vcc.engine.models.expert_spec import ExpertSpec
from vcc.engine.models.quant.kv import KvSpec
from vcc.engine.models.quant.spec import FP8, QuantSpec
from vcc.engine.models.rope import RopeSpec


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """All sizes and switches of one decoder; equal specs compile to equal code.

    Attributes:
        architecture: name as in `config.json`.
        vocab, hidden, intermediate, layers, heads, kv_heads, head_dim: sizes.
        max_positions: longest context in tokens.
        eps: added to the mean square in every norm.
        norm_offset: added to every norm weight (1.0 where weights are stored around zero).
        tied: the output head is the embedding.
        qkv_bias, o_bias, mlp_bias: which projections carry a bias.
        qk_norm: queries and keys are normalised per head before rope.
        sandwich: attention and MLP outputs are normalised before they join the residual.
        activation: `silu` or `gelu_tanh`, of the gated MLP.
        embed_scale: factor on the embeddings.
        scale: factor on attention scores.
        attention_cap, logit_cap: soft caps; 0.0 means none.
        windows: for each layer the sliding window in tokens; 0 means full attention.
        ropes: the distinct rotary embeddings.
        layer_ropes: for each layer the index of its rope; -1 means none.
        experts: those of the sparse layers; None where all are dense.
        quant: how projections are quantised; None where they are not.
        kv: how the KV cache is; None where it has the model's dtype.
    """

    architecture: str
    vocab: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    max_positions: int
    eps: float
    norm_offset: float
    tied: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    sandwich: bool
    activation: str
    embed_scale: float
    scale: float
    attention_cap: float
    logit_cap: float
    windows: tuple[int, ...]
    ropes: tuple[RopeSpec, ...]
    layer_ropes: tuple[int, ...]
    experts: ExpertSpec | None = None
    quant: QuantSpec | None = None
    kv: KvSpec | None = None

    @property
    def q_width(self) -> int:
        """Width of all query heads side by side."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all key (or value) heads side by side."""
        return self.kv_heads * self.head_dim

    @property
    def usual_length(self) -> int:
        """Tokens of a sequence where nobody says: what the model is exact for whatever comes."""
        lengths = [rope.original for rope in self.ropes if rope.kind == "longrope"]
        return min(lengths, default=self.max_positions)

    def for_length(self, longest: int) -> DecoderSpec:
        """The decoder for sequences of at most so many tokens: its code may depend on that."""
        return replace(self, ropes=tuple(rope.for_length(longest) for rope in self.ropes))

    def is_sparse(self, layer: int) -> bool:
        """Whether a layer has experts."""
        return self.experts is not None and self.experts.layers[layer]

    def kv_dtype(self, dtype: str) -> str:
        """Torch's name of the KV cache's element type, for a model of this dtype."""
        return dtype if self.kv is None else FP8

    def kv_shape(self, num_blocks: int, block_size: int) -> tuple[int, int, int, int, int]:
        """Shape of one layer's KV cache: K at index 0, V at index 1."""
        return (2, num_blocks, block_size, self.kv_heads, self.head_dim)
