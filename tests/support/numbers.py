"""The numbers rule: how close logits must be to transformers' (docs: design, section 10).

Logits are [positions, vocabulary]; the rule is applied to all positions of one set of inputs.
Outputs that are no logits, such as the hidden states of an encoder, have no best token, and are
asked for their errors alone (docs/decisions/0028).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

Measure = Callable[[Tensor], float]
"""Errors to one number."""

FP32_SHARE = 1e-4
"""fp32: largest error at a position, as a share of the largest logit there."""

LOW_PRECISION_SHARE = 1.25
"""bf16, fp16, fp8: error as a multiple of transformers' own error in that dtype."""

GAP_SHARE = 4.0
"""Low precision: the best token must agree where the reference's lead exceeds this x the error."""


def assert_fp32_close(actual: Tensor, reference: Tensor) -> None:
    """fp32 logits against an fp32 reference, every position; the best tokens are equal."""
    actual, reference = assert_states_close(actual, reference)
    differing = (actual.argmax(-1) != reference.argmax(-1)).nonzero().flatten().tolist()
    assert not differing, f"other tokens at positions {differing[:5]}"


def assert_states_close(actual: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
    """fp32 outputs that are no logits [positions, values]; gives both sides as fp32."""
    actual, reference = _pair(actual, reference)
    error = (actual - reference).abs().amax(-1)
    allowed = FP32_SHARE * reference.abs().amax(-1)
    worst = int((error / allowed).argmax())
    assert bool((error <= allowed).all()), (
        f"position {worst}: error {error[worst]:.3g}, allowed {allowed[worst]:.3g}"
    )
    return actual, reference


def assert_low_precision(actual: Tensor, reference: Tensor, peer: Tensor) -> None:
    """Low-precision logits against an fp32 reference, measured by the peer's own error.

    Args:
        actual: logits under test.
        reference: the peer's logits in fp32 from the same weights.
        peer: the peer's logits in the dtype under test.
    """
    _assert_within(actual, reference, peer, EACH)


def assert_states_low_precision(actual: Tensor, reference: Tensor, peer: Tensor) -> None:
    """Low-precision outputs that are no logits; arguments as above."""
    _assert_errors(*_pair(actual, reference), peer, EACH)


def assert_quantised(actual: Tensor, reference: Tensor, peer: Tensor) -> None:
    """Logits of a model whose activations are rounded to fp8; arguments as above.

    A maximum is a draw there (docs/decisions/0020): all but one in a thousand are held instead.
    """
    _assert_within(actual, reference, peer, {"rms": _rms, "one in a thousand": _high})


def assert_routed(actual: Tensor, reference: Tensor, peer: Tensor) -> None:
    """Logits of a model with experts in low precision; arguments as above.

    A maximum is a draw there too (docs/decisions/0019).
    """
    assert_quantised(actual, reference, peer)


def _assert_within(
    actual: Tensor, reference: Tensor, peer: Tensor, measures: Mapping[str, Measure]
) -> None:
    actual, reference = _pair(actual, reference)
    theirs = _assert_errors(actual, reference, peer, measures)
    best = reference.topk(2, dim=-1).values
    clear = (best[:, 0] - best[:, 1]) > GAP_SHARE * _rms(theirs)
    wrong = clear & (actual.argmax(-1) != reference.argmax(-1))
    assert not bool(wrong.any()), f"other tokens at {wrong.nonzero().flatten().tolist()[:5]}"


def _assert_errors(
    actual: Tensor, reference: Tensor, peer: Tensor, measures: Mapping[str, Measure]
) -> Tensor:
    """Hold each measure of our errors to the peer's; gives the peer's errors."""
    ours, theirs = actual - reference, peer.float() - reference
    for name, measure in measures.items():
        limit = LOW_PRECISION_SHARE * measure(theirs)
        assert measure(ours) <= limit, f"{name} error {measure(ours):.4g}, allowed {limit:.4g}"
    return theirs


def _pair(actual: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
    assert actual.shape == reference.shape
    bad = (~actual.isfinite()).any(-1).nonzero().flatten().tolist()
    assert not bad, f"logits of {len(bad)} of {len(actual)} positions are not finite: {bad[:9]}"
    return actual.float(), reference.float()


def _rms(error: Tensor) -> float:
    return float(error.square().mean().sqrt())


def _largest(error: Tensor) -> float:
    return float(error.abs().max())


def _high(error: Tensor) -> float:
    return float(error.abs().flatten().quantile(0.999))


EACH: Mapping[str, Measure] = {"rms": _rms, "maximum": _largest}
"""What is asked of errors where one value may be as wrong as the peer's worst."""
