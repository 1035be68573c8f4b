"""One probe for each function that touches private torch: a new torch breaks it by name.

A probe asks for the fact that vcc builds on, on the smallest input that shows it. Probes of what
tracing needs are in `test_probes_trace.py`, of graph nodes in `test_probes_nodes.py`.
"""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.generated import source_of
from support.toys import rows, traced

import vcc.engine.torch_shim as package
from vcc.cache.errors import ConfigError, DeviceError
from vcc.engine.partition.split import split
from vcc.engine.torch_shim import (
    aoti_runner,
    array_names,
    dispatch_mode,
    gpus,
    inductor,
    preload,
    process,
)
from vcc.engine.types import Piece


def functions(path: Path) -> list[str]:
    """Names of the functions of a file."""
    return [n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef)]


def test_every_function_has_its_probe() -> None:
    shims = Path(str(package.__file__)).parent.glob("*.py")
    public = [f"{p.stem}_{n}" for p in shims for n in functions(p) if not n.startswith("_")]
    probes = {n for p in Path(__file__).parent.glob("test_probes*.py") for n in functions(p)}
    assert len(public) > 20
    assert [name for name in public if f"test_{name}" not in probes] == []


def piece(function: Callable[..., Any]) -> Piece:
    """The only piece of `function(module, x)`."""
    (found,) = split(traced(function, {"x": rows()}, {"x": {0: "T"}}), (), ()).unique
    return found


def in_a_fork(body: Callable[[], object]) -> int:
    """The exit status of a forked child that runs `body`; 0 when it is true."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if body() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# --- aoti_runner


def test_aoti_runner_open_piece(tmp_path: Path) -> None:
    """The class is there, takes a path and a number, and `run` is what is called."""
    runner = torch._C._aoti.AOTIModelContainerRunnerCpu
    assert callable(runner.run)
    with pytest.raises(RuntimeError, match=r"nothing\.so|open"):
        aoti_runner.open_piece(tmp_path / "nothing.so")


# --- array_names


def test_array_names_stable_array_names() -> None:
    from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

    before = CppWrapperCpu.codegen_int_array_var
    with array_names.stable_array_names():
        assert CppWrapperCpu.codegen_int_array_var is not before
    assert CppWrapperCpu.codegen_int_array_var is before


# --- gpus


def test_gpus_hide_gpus() -> None:
    def body() -> bool:
        torch.cuda.is_available = lambda: True
        gpus.hide_gpus()
        return not torch.cuda.is_available() and torch.cuda.device_count() == 0

    before = torch.cuda.is_available
    assert in_a_fork(body) == 0
    assert torch.cuda.is_available is before


# --- inductor


ABSENT_BEFORE_2_13 = {
    "aot_inductor.enable_frame_pointer",
    "aot_inductor.enable_line_tables",
    "cpp.march",
}
"""Options that only trim what is written, or that the shim replaces by a flag of its own."""


def test_inductor_merged_options() -> None:
    """Every option of ours is one of Inductor's in this torch, or is known to come later."""
    from torch._inductor import config

    options = inductor.merged_options("x86-64-v3", {"cpp.simdlen": 128})
    later = torch.__version__ < "2.13"
    absent = {name for name in options if not inductor._known(config, name)}
    assert absent <= (ABSENT_BEFORE_2_13 if later else set())
    assert options["cpp.simdlen"] == 128, "the user's win"
    with pytest.raises(DeviceError, match="x86-64-v1"):
        inductor.merged_options("x86-64-v1", {})


def test_inductor_compile_library() -> None:
    """The way from graph to C++, stopped before the compiler; unknown options are named."""
    source = source_of(piece(lambda m, x: x.softmax(-1)))
    assert "AOTInductorModel::run_impl" in source
    assert "#pragma omp" in source
    with pytest.raises(ConfigError, match=r'no option "cpp\.simdlenn"'):
        source_of(piece(lambda m, x: x * 2), {"cpp.simdlenn": 1})


def test_inductor_check_options() -> None:
    """Names are those of Inductor's own table; the closest ones are offered."""
    inductor.check_options({"max_autotune": True, "cpp.simdlen": 256, "cpp.min_chunk_size": 64})
    with pytest.raises(ConfigError, match=r'no option "max_autotun"') as caught:
        inductor.check_options({"max_autotun": True})
    assert "max_autotune" in caught.value.hint
    with pytest.raises(ConfigError) as caught:
        inductor.check_options({"quite.something.else": 1})
    assert "config.py" in caught.value.hint
    with pytest.raises(ConfigError, match='no option "cpp"'):
        inductor.check_options({"cpp": 1})


@pytest.mark.parametrize(
    ("name", "good", "bad", "takes"),
    [
        ("max_autotune", True, 1, "bool"),
        ("cpp.min_chunk_size", 64, True, "int"),
        ("cpp.simdlen", 256, "256", "int | None"),
        ("max_autotune_gemm_backends", "ATEN", 3, "str"),
        ("max_autotune_gemm_search_space", "DEFAULT", "default", "EXHAUSTIVE"),
        ("generate_intermediate_hooks", False, "no", "bool"),
    ],
)
def test_inductor_options_have_kinds(name: str, good: object, bad: object, takes: str) -> None:
    """Inductor itself takes any value, and fails far from where it was written."""
    inductor.check_options({name: good})
    with pytest.raises(ConfigError, match=f'option "{name}" cannot be') as caught:
        inductor.check_options({name: bad})
    assert takes in caught.value.why


def test_inductor_options_of_its_own_defaults_are_taken() -> None:
    """Also under names that stand for another option."""
    from torch._inductor import config

    names = [*config.get_config_copy(), "force_disable_caches"]  # type: ignore[attr-defined]
    values = {name: _value(config, name) for name in names}
    plain = {n: v for n, v in values.items() if isinstance(v, bool | int | float | str)}
    assert len(plain) > 300
    inductor.check_options(plain)


def _value(config: Any, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), config)


def test_inductor_fits() -> None:
    """A whole number is a float; what holds several takes no scalar."""
    assert inductor.fits(1, float)
    assert inductor.fits(1, float | None)
    assert not inductor.fits(1.0, int)
    assert not inductor.fits("x", list[str])
    assert inductor.fits("x", type(None)), "an option that says None and no type"


# --- dispatch_mode


def test_dispatch_mode_heard() -> None:
    """Every operator below autograd comes by, composite ones as what they consist of."""
    names: list[str] = []

    def hear(op: Any, args: Any, kwargs: Any) -> Any:
        names.append(op.name())
        return op(*args, **kwargs)

    with torch.no_grad(), dispatch_mode.heard(hear):
        torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3)).relu()
    assert names[-1] == "aten::relu"
    assert any(name in names for name in ("aten::mm", "aten::linear"))
    heard_so_far = len(names)
    torch.ones(2) + 1
    assert len(names) == heard_so_far


def test_dispatch_mode_is_higher_order() -> None:
    """Those are heard too, and run as ever."""
    told: list[tuple[str, bool]] = []

    def hear(op: Any, args: Any, kwargs: Any) -> Any:
        told.append((op.name(), dispatch_mode.is_higher_order(op)))
        return op(*args, **kwargs)

    with torch.no_grad(), dispatch_mode.heard(hear):
        x = torch.ones(2)
        y = torch.ops.higher_order.cond(
            x.sum() > 0, lambda one: (one + 1,), lambda one: (one,), (x,)
        )
    assert torch.equal(y[0], torch.full((2,), 2.0))
    assert ("cond", True) in told
    assert ("aten::ones", False) in told


def test_dispatch_mode_unheard() -> None:
    names: list[str] = []

    def hear(op: Any, args: Any, kwargs: Any) -> Any:
        names.append(op.name())
        return op(*args, **kwargs)

    with dispatch_mode.heard(hear):
        with dispatch_mode.unheard():
            torch.ones(2) * 2
        torch.ones(2) + 1
    assert "aten::mul.Tensor" not in names
    assert "aten::add.Tensor" in names


# --- preload


def test_preload_preload_inductor() -> None:
    """In a fresh process: what a compile imports is there, and no test program was compiled."""
    code = (
        "import sys, subprocess\n"
        "def refuse(*a, **k): raise SystemExit('a process was started')\n"
        "from vcc.engine.torch_shim.preload import MODULES, preload_inductor\n"
        "import torch, torch._inductor.config\n"
        "subprocess.check_call = subprocess.check_output = refuse\n"
        "preload_inductor('x86-64-v3')\n"
        "from torch._inductor import cpu_vec_isa\n"
        "isa = cpu_vec_isa.pick_vec_isa()\n"
        "assert type(isa).__name__ == 'VecAVX2', isa\n"
        "print(len([name for name in MODULES if name in sys.modules]))\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) >= len(preload.MODULES) - 2


# --- process


def test_process_leave_parent_alone(tmp_path: Path) -> None:
    def body() -> bool:
        process.leave_parent_alone(tmp_path / "log")
        os.write(1, b"to the log\n")
        print("and so is this", file=sys.stderr, flush=True)
        return torch.get_num_threads() == 1

    assert in_a_fork(body) == 0
    assert (tmp_path / "log").read_text() == "to the log\nand so is this\n"


def test_process_end() -> None:
    assert in_a_fork(lambda: process.end(7)) == 7
