"""Results are taken apart into tensors and a tree, and put together again."""

from __future__ import annotations

import pytest
import torch

from vcc.cache.errors import IntegrityError, ModelError
from vcc.engine.library.outputs import flattened, restored


@pytest.mark.parametrize(
    "shape",
    [
        lambda a, b: a,
        lambda a, b: (a, b),
        lambda a, b: {"x": [a, None], "y": ({"z": b},)},
        lambda a, b: None,
        lambda a, b: (),
    ],
)
def test_a_tree_is_restored_as_it_was(shape) -> None:
    value = shape(torch.ones(1), torch.zeros(2))
    leaves, tree = flattened(value)
    assert restored(tree, leaves) == value or restored(tree, leaves) is value


@pytest.mark.parametrize("value", [3, "text", {1: torch.ones(1)}, {1.0}, torch.Size([1])])
def test_what_an_artifact_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(ModelError, match="returns a"):
        flattened(value)


@pytest.mark.parametrize(
    "tree",
    [1, -1, True, "0", {"object": [0]}, {"tuple": 0}, {"dict": [["a"]]}, {"dict": [[1, 0]]}, [0]],
)
def test_a_tree_of_another_form_is_refused(tree: object) -> None:
    with pytest.raises(IntegrityError, match="form of the outputs"):
        restored(tree, [torch.ones(1)])


def test_a_tree_of_any_depth_is_refused_without_a_crash() -> None:
    tree: object = 0
    for _ in range(5000):
        tree = {"tuple": [tree]}
    with pytest.raises(IntegrityError):
        restored(tree, [torch.ones(1)])
