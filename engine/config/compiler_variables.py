"""Environment variables of a build as tables: what enters the key, what never reaches a compiler,
and what may be read because it changes no code.

Together they are an allow-list: a set variable that torch or Triton reads and that stands in none
of them is told when it happens, and the manifest keeps its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .reads import Reads

KEY_VARIABLES = ("CXX",)
"""Variables that change compiled code and are left to the user: in the code key."""

DROPPED = (
    *("AOTINDUCTOR_", "AOT_INDUCTOR_", "AOT_PARTITIONER_", "ATEN_CPU_CAPABILITY", "CI"),
    *("COMPILE_STROBELIGHT_", "CUTEDSL_", "CUTLASS_"),
    *("DUMP_AOTI_MINIFIER", "ENABLE_HOST_SIDE_TMA", "ENABLE_PERSISTENT_TMA_"),
    *("ENABLE_TEMPLATE_", "ENABLE_TMA_", "FLYDSL_"),
    *("FAKE_ALLOW_META", "FX_", "INDUCTOR_", "LOG_AUTOTUNE_RESULTS", "LOG_TLPARSE"),
    *("MAST_HPC_JOB_NAME", "PARTITIONER_", "PT2_", "PYTORCH_GEN_PATTERNS", "PYTORCH_JIT"),
    *(
        "PYTORCH_MATCHER_",
        "PYTORCH_REORDER_",
        "PYTORCH_SINK_",
        "PYTORCH_SUM_",
        "SYMPY_",
        "TORCHDYNAMO_",
    ),
    *("TORCHEXPORT_", "TORCHINDUCTOR_", "TORCH_BISECT_", "TORCH_CACHING_", "TORCH_COMPILE"),
    *(
        "TORCH_CUDAGRAPH_",
        "TORCH_DISABLE_NATIVE_",
        "TORCH_DISTRIBUTED_COMPILE_",
        "TORCH_DYNAMO_",
        "TORCH_ENRICH_",
    ),
    *("TORCH_FAKE_TENSOR_", "TORCH_INDUCTOR_", "TORCH_STRICT_", "TRITON_"),
    *("TORCH_PYTHON_NATIVE_", "UNSAFE_SKIP_FSDP_"),
)
"""Names, and beginnings that end in an underscore or name a family, of variables that are taken
out of the environment of a build: none is in the key, so none may change code. What of them is
wanted is said in the configuration (`inductor_config`)."""

UNTOLD = ("CI",)
"""Of those, what every machine of a CI service sets and nobody means for a compiler: it is taken
out without a word."""

HARMLESS: Mapping[str, str] = {
    **dict.fromkeys(
        ("HOME", "USERNAME", "USER", "LOGNAME", "LNAME", "XDG_CACHE_HOME"),
        "names folders of caches and of their owner, which a build replaces by its own",
    ),
    **dict.fromkeys(
        ("TMPDIR", "TEMP", "TMP"), "where a build's private folder is; its path is mapped away"
    ),
    "PATH": "where the C++ compiler is found; its name and version are in the key",
    "PYTHONUSERBASE": "where Python's own headers would be; pieces include none",
    **dict.fromkeys(
        ("_PYTHON_PROJECT_BASE", "_PYTHON_HOST_PLATFORM", "_PYTHON_SYSCONFIGDATA_NAME"),
        "how Python was built; pieces do not link to it",
    ),
    **dict.fromkeys(
        ("CUDA_HOME", "CUDA_PATH", "CUDNN_HOME", "CUDNN_PATH", "WINDOWS_CUDA_HOME", "ROCM_HOME"),
        "places of toolkits for extensions; kernels are compiled by Triton's own assembler",
    ),
    **dict.fromkeys(
        (
            *("TORCH_LOGS", "TORCH_LOGS_FORMAT", "TORCH_LOGS_OUT", "TORCH_LOGS_TRACE_ID_FILTER"),
            *("TORCH_TRACE", "TORCH_DTRACE", "KINETO_USE_DAEMON"),
        ),
        "says what torch logs",
    ),
    **dict.fromkeys(
        ("TORCH_DEVICE_BACKEND_AUTOLOAD", "TORCH_USE_RTLD_GLOBAL", "TORCH_CUDA_SANITIZER"),
        "how torch itself is loaded",
    ),
    **dict.fromkeys(
        (
            "TORCH_DISTRIBUTED_USE_TORCHCOMMS",
            "TORCH_DISTRIBUTED_PIPELINE_PER_DIRECTION_P2P",
            "TORCH_DISTRIBUTED_PIPELINE_PER_EDGE_P2P",
        ),
        "who carries messages between ranks, and how; one rank has none",
    ),
    "PYTORCH_NVML_BASED_CUDA_CHECK": "how torch looks for a GPU; a build uses none",
    "CUDA_VISIBLE_DEVICES": "code is made for the target, not for a device that is there",
    "LD_LIBRARY_PATH": "where the loader looks; versions are in the key",
}
"""What torch or Triton reads in a build and why it changes no code."""

READERS = ("torch", "triton", "functorch", "torchgen")
"""Packages whose reads can change code, besides the model's own modules."""


def is_dropped(name: str) -> bool:
    """Whether a build takes the variable out of its environment."""
    return any(_fits(name, known) for known in DROPPED)


def unlisted(reads: Reads, readers: Iterable[str], pinned: Iterable[str]) -> tuple[str, ...]:
    """The variables that these packages read and no table knows, sorted.

    Args:
        reads: what was read in a build.
        readers: packages besides `READERS`.
        pinned: variables that the build sets itself.
    """
    known = {*KEY_VARIABLES, *HARMLESS, *pinned}
    found = reads.by((*READERS, *readers))
    return tuple(name for name in found if name not in known and not is_dropped(name))


def _fits(name: str, known: str) -> bool:
    return name == known or (known != "CI" and name.startswith(known))
