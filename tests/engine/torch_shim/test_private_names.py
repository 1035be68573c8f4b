"""Every name of torch and Triton that may change without a word: listed, and there.

`private_names.txt` is the list; a name that the shim begins to use is added there:
`python tests/engine/torch_shim/test_private_names.py` writes it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from support.private_names import (
    is_unstable,
    named_modules,
    private_attributes,
    resolved,
    used_names,
)

import vcc.engine.torch_shim as package

LIST = Path(__file__).with_name("private_names.txt")
SHIMS = sorted(Path(str(package.__file__)).parent.glob("*.py"))
NAMES = LIST.read_text(encoding="utf-8").splitlines()

ONLY_WHILE_COMPILING = {
    "torch._inductor.virtualized.V.graph.operations": "torch._inductor.graph.GraphLowering"
}
"""What has a name only while a graph is lowered: what that name is of."""


def collected() -> list[str]:
    found: set[str] = set()
    for path in SHIMS:
        found |= {name for name in used_names(path) if is_unstable(name)} | named_modules(path)
    return sorted(found)


def test_the_list_is_what_the_shim_uses() -> None:
    assert collected() == NAMES, f"write {LIST.name} anew: python {__file__}"
    assert len(NAMES) > 50


@pytest.mark.parametrize("name", NAMES)
def test_this_torch_has(name: str) -> None:
    """An AttributeError says which it has not."""
    resolved(ONLY_WHILE_COMPILING.get(name, name))


HOLDERS: Mapping[str, Callable[[], Any]] = {
    **dict.fromkeys(
        ("_opname", "_overloadname", "_schema"), lambda: torch.ops.aten.add.Tensor
    ),
    **dict.fromkeys(
        ("_buffers", "_modules", "_non_persistent_buffers_set", "_parameters"), torch.nn.Module
    ),
    "_version": lambda: torch.ones(1),
    **dict.fromkeys(
        ("_generate_buffer", "_generate_sym_node", "_generate_sym_nodes",
         "_generate_unbacked_symbol_defs"),
        lambda: resolved("torch._inductor.codegen.wrapper_fxir.FxConverter"),
    ),
    **dict.fromkeys(
        ("_convert_float", "_interpreter", "_patch_lang"),
        lambda: resolved("triton.runtime.interpreter"),
    ),
    "_cuda_getCurrentRawStream": lambda: None,  # made by the shim in a torch without CUDA
    "_DeviceGuard": lambda: torch.cuda,
    "_node_metadata_hook": lambda: resolved("torch._inductor.codegen.wrapper_fxir"),
    "_custom_combo_kernel_horizontal_partition_algorithm": lambda: resolved(
        "torch._inductor.codegen.triton_combo_kernel"
    ),
    "_has_cuda": lambda: resolved("torch._C"),
    "_ensureCUDADeviceGuardSet": lambda: None,  # in a torch with CUDA alone
}  # fmt: skip
"""An object that has each private attribute; None where the attribute is of the shim's making."""


def test_private_attributes_are_known() -> None:
    found = {name for path in SHIMS for name in private_attributes(path)}
    assert found == HOLDERS.keys()


@pytest.mark.parametrize("name", sorted(HOLDERS))
def test_this_torch_has_the_attribute(name: str) -> None:
    holder = HOLDERS[name]()
    assert holder is None or hasattr(holder, name)


def test_a_name_that_is_gone_fails_by_name() -> None:
    with pytest.raises(AttributeError, match=r"torch\._inductor\.no_such_thing"):
        resolved("torch._inductor.no_such_thing")


SOURCE = """
from torch._inductor import config as c
import torch.utils._pytree
from torch.fx import Node
from torch import nn

def f(node):
    c.cpp.march
    torch.utils._pytree.tree_leaves
    node.target._schema
    nn.Linear
    self._own
    load("torch._dynamo.eval_frame")
"""


def test_imports_chains_texts_and_attributes_are_found(tmp_path: Path) -> None:
    path = tmp_path / "shim.py"
    path.write_text(SOURCE)
    names = {name for name in used_names(path) if is_unstable(name)}
    assert names == {
        *("torch._inductor.config.cpp.march", "torch.utils._pytree.tree_leaves", "torch.fx.Node"),
    }
    assert named_modules(path) == {"torch._dynamo.eval_frame"}
    assert private_attributes(path) == {"_schema"}


if __name__ == "__main__":
    LIST.write_text("\n".join(collected()) + "\n", encoding="utf-8")
