"""Modules that would compute something else have another identity; equal ones have the same."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from support import library_zoo as zoo
from torch import nn

from vcc.cache.errors import ModelError
from vcc.engine.library.identity import identity_of
from vcc.engine.library.watch import Watch


def of(module: nn.Module):
    return identity_of(module, type(module))


def test_weights_are_no_part_of_it_and_attributes_are() -> None:
    assert of(zoo.Small()) == of(zoo.Small())
    assert of(zoo.Small()) != of(zoo.Small(scale=3.0))


def test_it_names_the_class_and_its_sources() -> None:
    found = of(zoo.Plain())
    assert (found.module, found.name) == ("support.library_zoo", "Plain")
    assert "support.library_zoo" in dict(found.code)


CHANGES = {
    "a dtype": lambda m: m.to(torch.bfloat16),
    "a size": lambda m: setattr(m, "linear", nn.Linear(4, 4, bias=False)),
    "a constant": lambda m: m.table.add_(1),
    "a tensor in an attribute": lambda m: setattr(m, "mask", torch.ones(2)),
    "a submodule's class": lambda m: setattr(m, "linear", nn.Identity()),
    "an attribute of a submodule": lambda m: setattr(m.linear, "extra", (1, "a")),
    "a hook": lambda m: m.register_forward_pre_hook(print),
    "its forward": lambda m: setattr(m, "forward", lambda x: x),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_the_code_changes_it(change: str) -> None:
    module = zoo.Small()
    before, seen = of(module), Watch(module)
    CHANGES[change](module)
    assert of(module) != before
    assert not seen.holds(), "calls must notice"


def test_a_replaced_weight_is_noticed_and_a_written_one_is_not() -> None:
    module = zoo.Plain()
    seen = Watch(module)
    with torch.no_grad():
        module.linear.weight.add_(1)
    assert seen.holds()
    module.linear.weight = nn.Parameter(torch.ones(4, 4))
    assert not seen.holds()


def test_a_value_that_is_gone_leaves_its_place_to_no_other() -> None:
    module = zoo.Small(scale=float("2.5"))
    seen = Watch(module)
    for step in range(200):  # one of them would land where the first was
        module.scale = float(step) + 0.25
    assert not seen.holds()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (0.0, -0.0),
        ([1, 2], (1, 2)),
        ({"a": 1}, {"a": 2}),
        (zoo.Words(width=4), zoo.Words(width=5)),
        (lambda x: x + 1, lambda x: x + 2),
        (torch.ones(2), torch.zeros(2)),
        (torch.float32, torch.float64),
    ],
    ids=repr,
)
def test_attributes_of_every_kind_are_told_apart(one: object, other: object) -> None:
    assert of(zoo.Held(one)) != of(zoo.Held(other))


def test_a_global_that_was_set_since_the_file_was_read_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = of(zoo.Plain())
    monkeypatch.setattr(zoo, "SCALE", 3.0)
    assert of(zoo.Plain()) != before


@pytest.mark.parametrize("held", [threading.Lock(), iter([1]), nn.Linear(1, 1).forward.__self__])
def test_what_cannot_be_described_is_refused(held: object) -> None:
    module = zoo.Held(None)
    module.__dict__["held"] = [held]
    with pytest.raises(ModelError, match=r"the module\.held\[0\]"):
        of(module)


def test_an_object_that_holds_itself_is_described() -> None:
    ring = zoo.Words()
    ring.ring = ring
    assert of(zoo.Held(ring)) == of(zoo.Held(ring))


def test_a_module_of_an_interactive_session_is_refused() -> None:
    kind = type("Loose", (zoo.Plain,), {"__module__": "nowhere"})
    with pytest.raises(ModelError, match="nowhere has no source file"):
        of(kind())


def test_every_process_finds_the_same() -> None:
    """Neither the order of sets nor addresses may enter."""
    code = (
        "from support import library_zoo as zoo\n"
        "from vcc.engine.library.identity import identity_of\n"
        "held = {'s': {'a', 'b', 'c'}, 'f': zoo.scores, 'w': zoo.Words(a=1)}\n"
        "print(identity_of(zoo.Held(held), zoo.Held), identity_of(zoo.Small(), zoo.Small))\n"
    )
    path = str(Path(zoo.__file__).parents[1])
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
