"""The back end of each custom op of a request: chosen, refused, told. No torch.

Keys, the manifest, `vcc compile --dry-run` and the build all ask here, so they agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vcc.cache.errors import DeviceError
from vcc.engine.asked_ops import source_entries
from vcc.engine.config.custom_ops import OpChoices
from vcc.engine.ops.backends import NATIVE
from vcc.engine.ops.capabilities import available
from vcc.engine.ops.choice import OpChoice, Route, Subject, choice_of, choose

if TYPE_CHECKING:
    from vcc.engine.models.decoder_spec import DecoderSpec
    from vcc.engine.request import Settled

RECORDED = "a recorded step takes Triton's kernels, with which recording is tested"
"""Why layers of a recording do not call cubins of ours."""


@dataclass(frozen=True, slots=True)
class OpRoute:
    """One custom op and its route."""

    op: str
    route: Route

    def as_dict(self) -> dict[str, Any]:
        """For the manifest and for JSON output."""
        refused = [{"backend": c.backend, "reason": c.refusal} for c in self.route.refused]
        return {
            "op": self.op,
            "backend": self.route.backend,
            "reason": self.route.reason,
            "refused": refused,
        }


def op_choice(settled: Settled) -> OpChoice:
    """What the layers of a request choose from; classes of the user's are imported."""
    target, ops = settled.request.target, settled.resolved.ops
    dtype = settled.model.dtype
    choice = choice_of(
        ops, target.platform.value, target.arch, "" if dtype is None else dtype.torch_name
    )
    if settled.resolved.artifact.needs_gpu:
        missing = (*choice.here.missing, ("cuda", RECORDED))
        choice = replace(choice, here=replace(choice.here, missing=missing))
    for name, layer in _replacements(ops):
        choice = choice.replacing(name, layer)
    return choice


def op_routes(settled: Settled) -> tuple[OpRoute, ...]:
    """The route of every custom op, in order of name."""
    choice, facts = op_choice(settled), facts_of(settled)
    return tuple(
        OpRoute(one.op, choose(_subject(one.op, choice), choice, facts))
        for one in settled.resolved.ops.decisions
    )


def facts_of(settled: Settled) -> Mapping[str, float]:
    """Numbers of the model's layers that a kernel may limit; none for a factory's module."""
    source = settled.request.source
    return _facts(source.spec) if source.kind == "decoder" else {}


def _facts(spec: DecoderSpec) -> Mapping[str, float]:
    return {
        "width": spec.hidden,
        "weight_offset": spec.norm_offset,
        "head_dim": spec.head_dim,
        "tanh": 1,
    }


def key_entries(settled: Settled) -> dict[str, str]:
    """What the code key says of custom ops: kernels that are taken, and sources of classes."""
    found = {f"op.{one.op}": _keyed(one.route, settled) for one in op_routes(settled)}
    return {label: text for label, text in found.items() if text != NATIVE} | dict(
        source_entries(settled.resolved.ops)
    )


def _keyed(route: Route, settled: Settled) -> str:
    target = settled.request.target
    versions = dict(available(target.platform.value, target.arch).versions)
    return " ".join(part for part in (route.backend, versions.get(route.backend)) if part)


def check_granted(settled: Settled) -> None:
    """Refuse to build what was asked for with something else in its place.

    Raises:
        DeviceError: a back end was asked for that this install or the model rules out.
    """
    for one in op_routes(settled):
        if one.route.asked:
            refusals = {c.backend: c.refusal for c in one.route.refused}
            raise DeviceError(
                f'custom op "{one.op}" cannot run on its {one.route.asked} back end',
                refusals.get(one.route.asked, "it is not one of the platform's"),
                f'write "+{one.op}" to take the first that can be used: {one.route.backend}',
            )


def _subject(op: str, choice: OpChoice) -> Subject:
    layer = choice.replacement(Subject.of(op).layer)
    if layer is None:
        return Subject.of(op)
    from vcc.engine.ops.custom_op import subject_of  # torch is there: the class was imported

    return subject_of(layer, choice)


def _replacements(ops: OpChoices) -> tuple[tuple[str, type], ...]:
    if not ops.layers:
        return ()
    from vcc.engine.ops.replaced import load_layers  # runs the user's code, which brings torch

    return load_layers(ops.layers)
