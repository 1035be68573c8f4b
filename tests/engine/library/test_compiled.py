"""vcc.compile: as in eager mode, from the store the second time, and never silently otherwise."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support import library_zoo as zoo

import vcc
from vcc.cache.errors import CompileError, MissingArtifact, ModelError, UsageError

DIMS, SIZES = {"x": 0, "y": 0}, {"T": (1, 64)}


def small(shelf: Path, module=None, **more):
    net = (module or zoo.Small()).eval()
    more = {"cache_dir": shelf, "dynamic_arg_dims": DIMS, "sizes": SIZES, "jobs": 1, **more}
    return net, vcc.compile(net, **more)


def same(found: object, wanted: object) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_a_call_is_as_in_eager_mode_and_comes_from_the_store_the_second_time(shelf: Path) -> None:
    net, compiled = small(shelf)
    eager = copy.deepcopy(net)
    before = dict(os.environ)
    with compiled.counters.expect(compiles=1, traces=1, misses=1):
        for rows in (3, 1, 64):
            x, y = torch.randn(rows, 4), torch.randn(rows, 4)
            given = x.clone()
            with torch.no_grad():
                wanted = eager(given, y)
            same(compiled(x, y), wanted)
            same(x, given)  # a changed input is the caller's
            same(net.seen, eager.seen)  # a buffer that is written is the module's
    assert os.environ == before
    again = vcc.compile(net, cache_dir=shelf, dynamic_arg_dims=DIMS, sizes=SIZES, require_warm=True)
    with again.counters.expect(compiles=0, traces=0, hits=1, restores=1):
        assert again.prepare(torch.ones(2, 4), torch.ones(2, 4)) == compiled.artifacts[0]


def test_inputs_of_any_layout_are_read_as_they_are(shelf: Path) -> None:
    net, compiled = small(shelf)
    eager = copy.deepcopy(net)
    wide, y = torch.randn(8, 6), torch.randn(4, 6).t()
    x = wide[::2, 1:5].t()
    given, expanded = x.clone(), torch.randn(1, 4).expand(4, 4)
    with torch.no_grad():
        wanted = eager(given, y[:4])
        same(compiled(x, y[:4]), wanted)
        same(x, given)
        same(wide[0, 1], given[0, 0])
        same(compiled(given.clone(), expanded), eager(given.clone(), expanded))


def test_inputs_that_share_memory_with_one_that_is_written_are_refused(shelf: Path) -> None:
    _, compiled = small(shelf)
    x = torch.randn(3, 4)
    with pytest.raises(UsageError, match="x and y share memory") as error:
        compiled(x, x)
    assert error.value.hint == "give y.clone()"
    for lying in (torch.randn(9).as_strided((3, 4), (2, 1)), torch.randn(3, 1).expand(3, 4)):
        with pytest.raises(UsageError, match="elements of x share memory"):
            compiled(lying, torch.randn(3, 4))


def test_nan_weights_give_what_eager_mode_gives(shelf: Path) -> None:
    net, compiled = small(shelf)
    with torch.no_grad():
        net.linear.weight[0, 0] = float("nan")
        net.linear.weight[1, 1] = float("inf")
        x, y = torch.randn(3, 4), torch.randn(3, 4)
        wanted = copy.deepcopy(net)(x.clone(), y)
    assert torch.isnan(wanted["z"]).any()
    same(compiled(x, y), wanted)


def test_weights_are_the_modules_own_also_when_they_are_replaced(shelf: Path) -> None:
    net, compiled = small(shelf, require_warm=False)
    x, y = torch.ones(2, 4), torch.ones(2, 4)
    for change in (
        lambda: net.linear.weight.data.add_(1),
        lambda: setattr(net.linear, "weight", torch.nn.Parameter(torch.randn(4, 4))),
        lambda: net.load_state_dict(zoo.Small().state_dict(), assign=True),
    ):
        compiled(x.clone(), y)
        change()
        with torch.no_grad():
            same(compiled(x.clone(), y)["z"], copy.deepcopy(net)(x.clone(), y)["z"])
    assert compiled.counters["compiles"] == 0


def test_outputs_are_new_tensors_unless_views_are_asked_for(shelf: Path) -> None:
    net, compiled = small(shelf)
    x, y = torch.ones(2, 4), torch.ones(2, 4)
    first = compiled(x.clone(), y)["z"]
    kept = first.clone()
    compiled(x.clone() * 3, y)
    assert torch.equal(first, kept)
    _, views = small(shelf, net, copy=False)
    assert views(x.clone(), y)["z"].data_ptr() == views(x.clone(), y)["z"].data_ptr()


def test_a_miss_is_an_error_where_nothing_may_be_built(shelf: Path) -> None:
    _, compiled = small(shelf, zoo.Small(scale=7.0), require_warm=True)
    with pytest.raises(MissingArtifact) as error:
        compiled(torch.ones(2, 4), torch.ones(2, 4))
    assert ".prepare(" in error.value.hint


def test_a_module_in_training_mode_is_refused(shelf: Path) -> None:
    net, compiled = small(shelf)
    net.linear.train()
    with pytest.raises(UsageError, match="training mode"):
        compiled(torch.ones(2, 4), torch.ones(2, 4))


@pytest.mark.parametrize("kind", ["size", "set", "number"])
def test_what_is_no_tensor_cannot_be_returned(kind: str, tmp_path: Path) -> None:
    compiled = vcc.compile(zoo.Returns(kind).eval(), cache_dir=tmp_path)
    with pytest.raises(ModelError, match="the module returns a"):
        compiled(torch.ones(2, 4))


def test_a_write_to_a_buffer_outside_the_state_dict_is_refused(tmp_path: Path) -> None:
    compiled = vcc.compile(zoo.Constant().eval(), cache_dir=tmp_path)
    with pytest.raises(CompileError, match="writes to count") as error:
        compiled(torch.ones(2, 4))
    assert "persistent=True" in error.value.hint


def test_more_variants_than_can_be_meant_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcc.engine.library.compiled.MOST_VARIANTS", 2)
    compiled = vcc.compile(zoo.Held(1).eval(), cache_dir=tmp_path)
    for rows in (1, 2):  # its input is its output: nothing is compiled
        same(compiled(torch.ones(rows)), torch.ones(rows))
    with pytest.raises(UsageError, match="2 variants of one module"):
        compiled(torch.ones(3))


def test_only_modules_are_compiled() -> None:
    with pytest.raises(UsageError, match=r"no nn\.Module") as error:
        vcc.compile(len)  # type: ignore[arg-type]
    assert "cache_compiled" in error.value.hint


def test_the_import_of_the_package_brings_no_torch() -> None:
    code = (
        "import sys, vcc\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
        "vcc.VccError, vcc.CompilationConfig, vcc.Monitor, vcc.Counters\n"
        "assert 'torch' not in sys.modules, 'a name that needs no torch brings it'\n"
        "[getattr(vcc, name) for name in vcc._LAZY]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
