"""The weights of one decoder layer: each parameter with the checkpoint's tensors that make it.

Torch-free. One table of rows gives both what a checkpoint must hold and how it is bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from vcc.engine.models.architecture_table import ARCHITECTURES
from vcc.engine.models.decoder_spec import DecoderSpec
from vcc.engine.models.expert_spec import ExpertSpec
from vcc.engine.models.expressions import NUMBER, Binding, Cat, Each, FromTensor
from vcc.engine.models.quant.experts import (
    expert_scales,
    experts_in_fp8,
    refuse_routers,
    refuse_stacked,
)
from vcc.engine.models.quant.weights import Scales, Source, scales_of
from vcc.engine.models.tensor_info import Shape, TensorInfo
from vcc.engine.models.tensor_names import STACKED, STACKED_BLOCK, TensorNames


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter and its sources.

    Attributes:
        parameter: name in the module.
        sources: (tensor, shape) in order, joined along the first dimension.
        each: of how many experts the sources are, stacked along a new dimension; 0 means none.
        fp8: they are stored in float8_e4m3fn and stay so; a parameter of scales goes with them.
    """

    parameter: str
    sources: tuple[tuple[str, Shape], ...]
    each: int = 0
    fp8: bool = False

    def binding(self) -> Binding:
        """The expression that makes the parameter."""
        parts = tuple(FromTensor(name) for name, _ in self.sources)
        joined: Binding = parts[0] if len(parts) == 1 else Cat(parts)
        return Each(joined, 0, self.each) if self.each else joined

    def tensors(self) -> Iterator[tuple[str, Shape]]:
        """Name and shape of every tensor it needs."""
        if not self.each:
            yield from self.sources
            return
        for index in range(self.each):
            for name, shape in self.sources:
                yield name.replace(NUMBER, str(index)), shape


def layer_weights(spec: DecoderSpec, index: int) -> Iterator[Weight | Scales]:
    """All weights of a layer.

    Raises:
        ModelError: quantised in a way that the layer has no kernels for.
    """
    made, names = _Layer(spec, index), ARCHITECTURES[spec.architecture].names
    yield from made.attention(names)
    if spec.experts is not None and spec.is_sparse(index):
        yield from made.experts(spec.experts, names)
    else:
        yield from made.gated("mlp", "mlp", names, spec.intermediate, bias=spec.mlp_bias)
    yield from made.norms()


def stacked_in(spec: DecoderSpec, tensors: Iterable[str] | Mapping[str, TensorInfo]) -> bool:
    """Whether a checkpoint stores the experts of a layer as one tensor."""
    wanted = {
        f"model.layers.{index}.{STACKED_BLOCK}.{STACKED[0]}"
        for index in range(spec.layers)
        if spec.is_sparse(index)
    }
    return not wanted.isdisjoint(tensors)


@dataclass(frozen=True, slots=True)
class _Layer:
    spec: DecoderSpec
    index: int

    def weight(
        self, parameter: str, *sources: tuple[str, Shape], each: int = 0, fp8: bool = False
    ) -> Weight:
        named = tuple((f"{self.home}.{name}", shape) for name, shape in sources)
        return Weight(f"layers.{self.index}.{parameter}", named, each, fp8)

    @property
    def home(self) -> str:
        return f"model.layers.{self.index}"

    def linear(
        self,
        parameter: str,
        names: tuple[str, ...],
        widths: tuple[int, ...],
        inner: int,
        bias: bool,
    ) -> Iterator[Weight | Scales]:
        """A projection, of several sources side by side or of one that is all of them."""
        outer = widths if len(names) == len(widths) else (sum(widths),)
        pairs, quant = tuple(zip(names, outer, strict=True)), self.spec.quant
        modules = tuple((f"{self.home}.{name}", width) for name, width in pairs)
        fp8 = quant is not None and quant.covers([name for name, _ in modules])
        sources = ((f"{n}.weight", (w, inner)) for n, w in pairs)
        yield self.weight(f"{parameter}.weight", *sources, fp8=fp8)
        if quant is not None and fp8:
            yield from scales_of(quant, f"layers.{self.index}.{parameter}", modules, inner)
        if bias:
            yield self.weight(f"{parameter}.bias", *((f"{n}.bias", (w,)) for n, w in pairs))

    def attention(self, names: TensorNames) -> Iterator[Weight | Scales]:
        spec = self.spec
        widths = (spec.q_width, spec.kv_width, spec.kv_width)
        qkv = tuple(f"self_attn.{name}" for name in names.qkv)
        yield from self.linear("attn.qkv", qkv, widths, spec.hidden, spec.qkv_bias)
        if spec.kv is not None and spec.kv.scales:
            scales = tuple((f"{self.home}.self_attn.{name}", (1,)) for name in spec.kv.scales)
            yield Scales(f"layers.{self.index}.attn.kv_scale", scales)
        o = ("self_attn.o_proj",)
        yield from self.linear("attn.o", o, (spec.hidden,), spec.q_width, spec.o_bias)

    def gated(
        self, parameter: str, block: str, names: TensorNames, width: int, bias: bool = False
    ) -> Iterator[Weight | Scales]:
        """A gated feed-forward layer."""
        gate_up = tuple(f"{block}.{name}" for name in names.gate_up)
        hidden = self.spec.hidden
        yield from self.linear(f"{parameter}.gate_up", gate_up, (width, width), hidden, bias)
        down = (f"{block}.down_proj",)
        yield from self.linear(f"{parameter}.down", down, (hidden,), width, bias)

    def experts(self, experts: ExpertSpec, names: TensorNames) -> Iterator[Weight | Scales]:
        hidden, width, count = self.spec.hidden, experts.width, experts.count
        block, quant = STACKED_BLOCK if experts.stacked else names.sparse, self.spec.quant
        home = f"{self.home}.{block}"
        fp8 = quant is not None and experts_in_fp8(quant, home, names.expert, count)
        refuse_routers(quant, home, shared=experts.shared > 0)
        if fp8 and experts.stacked:
            refuse_stacked(home)
        yield self.weight("mlp.router.weight", (f"{block}.gate.weight", (count, hidden)))
        if experts.stacked:
            shapes = ((count, 2 * width, hidden), (count, hidden, width))
            for parameter, name, shape in zip(("gate_up", "down"), STACKED, shapes, strict=True):
                yield self.weight(f"mlp.experts.{parameter}", (f"{block}.{name}", shape))
        else:
            gate, up, down = (f"{block}.experts.{NUMBER}.{n}" for n in names.expert)
            sources = ((gate, width), (up, width))
            yield from self.expert("gate_up", sources, hidden, count, fp8)
            yield from self.expert("down", ((down, hidden),), width, count, fp8)
        if experts.shared:
            shared = f"{block}.shared_expert"
            yield from self.gated("mlp.shared", shared, names, experts.shared)
            yield self.weight("mlp.shared_gate.weight", (f"{shared}_gate.weight", (1, hidden)))

    def expert(
        self, name: str, modules: tuple[Source, ...], inner: int, count: int, fp8: bool
    ) -> Iterator[Weight | Scales]:
        """A projection of all experts, stacked, of one source an expert or of two side by side."""
        sources = ((f"{module}.weight", (rows, inner)) for module, rows in modules)
        weight = self.weight(f"mlp.experts.{name}", *sources, each=count, fp8=fp8)
        yield weight
        if fp8 and self.spec.quant is not None:
            whole = tuple((f"{self.home}.{module}", rows) for module, rows in modules)
            yield from expert_scales(self.spec.quant, weight.parameter, whole, inner, count)

    def norms(self) -> Iterator[Weight]:
        spec = self.spec
        found = [("input_norm", "input_layernorm", spec.hidden)]
        found.append(("post_attention_norm", "post_attention_layernorm", spec.hidden))
        if spec.sandwich:
            found.append(("pre_feedforward_norm", "pre_feedforward_layernorm", spec.hidden))
            found.append(("post_feedforward_norm", "post_feedforward_layernorm", spec.hidden))
        if spec.qk_norm:
            found.append(("attn.q_norm", "self_attn.q_norm", spec.head_dim))
            found.append(("attn.k_norm", "self_attn.k_norm", spec.head_dim))
        for parameter, name, size in found:
            yield self.weight(f"{parameter}.weight", (f"{name}.weight", (size,)))
