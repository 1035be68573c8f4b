"""Which forward a layer takes, and why."""

from __future__ import annotations

import pytest

from vcc.engine.ops.choice import FORWARDS, NATIVE, OpChoice, route


class _Layer:
    def forward_native(self) -> None: ...

    def forward_cpu(self) -> None: ...

    def forward_hip(self) -> None: ...


@pytest.mark.parametrize(
    ("choice", "method", "reason"),
    [
        (OpChoice(), NATIVE, "norm is not among the enabled custom ops"),
        (OpChoice(frozenset({"other"})), NATIVE, "norm is not among the enabled custom ops"),
        (OpChoice(frozenset({"norm"})), "forward_cpu", "norm is enabled and _Layer has"),
        (OpChoice(frozenset({"norm"}), "cuda"), NATIVE, "_Layer has no forward_cuda"),
        (OpChoice(frozenset({"norm"}), "rocm"), "forward_hip", "norm is enabled"),
        (OpChoice(frozenset({"norm"}), "tpu"), NATIVE, "platform tpu has no kernels of its own"),
    ],
)
def test_route(choice: OpChoice, method: str, reason: str) -> None:
    found = route("norm", _Layer, choice)
    assert found.method == method
    assert reason in found.reason


def test_every_platform_of_the_table_names_a_forward() -> None:
    assert all(method.startswith("forward_") for method in FORWARDS.values())


def test_replacing_twice_keeps_the_last_and_the_others() -> None:
    choice = OpChoice().replacing("A", int).replacing("B", str).replacing("A", float)
    assert choice.replacement("A") is float
    assert choice.replacement("B") is str
    assert choice.replacement("C") is None
    assert hash(choice) == hash(OpChoice().replacing("B", str).replacing("A", float))
