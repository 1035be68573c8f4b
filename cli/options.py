"""The options that commands share, each declared once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Optional

import typer

GRAPH_MODES = ("none", "piecewise", "full", "full_decode_only", "full_and_piecewise")
COMPILE_MODES = ("vcc", "stock", "none")
DTYPES = ("fp32", "bf16", "fp16")
KV_CACHES = ("auto", "fp8")
GOLDEN = ("off", "one", "all")
POLICIES = ("own", "signed", "prod")


def complete(values: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Shell completion from a list of words."""

    def matching(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return matching


def complete_model(incomplete: str) -> list[str]:
    """Shell completion of MODEL: the demo, and directories that hold a config.json."""
    place = Path(incomplete or ".")
    folder = place if incomplete.endswith("/") or not incomplete else place.parent
    try:
        models = [str(config.parent) for config in folder.glob("*/config.json")]
    except OSError:
        models = []
    return [name for name in ("demo", *sorted(models)) if name.startswith(incomplete)]


# Typer reads these at run time, on Python 3.10 too, hence Optional and not `| None`.
Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="demo, a directory, a Hugging Face id, or package.module:factory",
        autocompletion=complete_model,
        show_default=False,
    ),
]
OptionalModel = Annotated[
    Optional[str],  # noqa: UP045
    typer.Argument(
        metavar="[MODEL]",
        help="a model as for run; without it, the last look-up that missed",
        autocompletion=complete_model,
        show_default=False,
    ),
]
Target = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--target",
        metavar="cpu|sm_90|...",
        help="what code is made for; without it this machine's GPU for decoders, else cpu",
    ),
]
TargetProfile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--target-profile",
        metavar="FILE",
        help="the GPU's figures, as doctor --profile writes them",
    ),
]
Mode = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--mode",
        metavar="|".join(GRAPH_MODES),
        help="which steps replay as static graphs",
        autocompletion=complete(GRAPH_MODES),
    ),
]
Compile = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--compile",
        metavar="|".join(COMPILE_MODES),
        help="how code is made",
        autocompletion=complete(COMPILE_MODES),
    ),
]
DtypeName = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--dtype",
        metavar="|".join(DTYPES),
        help="element type; the checkpoint's by default",
        autocompletion=complete(DTYPES),
    ),
]
KvCacheDtype = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--kv-cache-dtype",
        metavar="|".join(KV_CACHES),
        help="element type of keys and values; auto is the checkpoint's scheme, else --dtype",
        autocompletion=complete(KV_CACHES),
    ),
]
Shapes = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--shapes", metavar="1,2,4,8", help="token counts that get a static graph"),
]
Config = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--compilation-config", metavar="JSON", help="any field of CompilationConfig"),
]
Level = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "-O",
        "--opt-level",
        metavar="0-3",
        help="fills what other options leave open; -O2 by default",
    ),
]
Weights = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--weights", metavar="none|PATH", help="where the weights are, or that there are none"
    ),
]
Revision = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--revision", metavar="NAME", help="branch, tag or commit of a Hugging Face id"),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="take a checkpoint that has code of its own (auto_map); it is not run",
    ),
]
InputShapes = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--shape",
        metavar="NAME=8x128",
        help="input of a factory's module, an encoder or a vision model (repeatable)",
    ),
]
MaxModelLen = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--max-model-len", metavar="N", help="most tokens of a prompt and its answer"),
]
MaxNumSeqs = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--max-num-seqs", metavar="N", help="most sequences in a step"),
]
MaxNumBatchedTokens = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--max-num-batched-tokens", metavar="N", help="most tokens in a step"),
]
EnableLora = Annotated[
    bool,
    typer.Option("--enable-lora", help="code into which adapters (LoRA) can be loaded"),
]
MaxLoras = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--max-loras", metavar="N", help="adapters that a step can hold"),
]
MaxLoraRank = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--max-lora-rank", metavar="N", help="largest rank of an adapter"),
]
LoraTargets = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--lora-target-modules",
        metavar="NAME",
        help="a projection that adapters may change (repeatable); without it, all",
    ),
]
Stored = Annotated[
    str,
    typer.Argument(
        metavar="ID|MODEL", help="an artifact id or its beginning, or a model", show_default=False
    ),
]


def _named_folder(text: str) -> Path:
    """An empty path would be the working directory: a variable that is not set, most likely."""
    if not text:
        raise typer.BadParameter("it is empty")
    return Path(text)


CacheDir = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--cache-dir", metavar="DIR", help="the store; also VCC_CACHE_DIR", parser=_named_folder
    ),
]
Remote = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--remote", metavar="URL", help="asked when no store has it; also VCC_REMOTE"),
]
Policy = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--policy",
        metavar="|".join(POLICIES),
        help="whose artifacts are used; also VCC_POLICY",
        autocompletion=complete(POLICIES),
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="trouble with a store is an error; also VCC_STRICT=1"),
]
StoredNames = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Argument(
        metavar="ID|MODEL...",
        help="artifact ids or their beginnings (6 digits or more), or models",
        show_default=False,
    ),
]
Filters = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--filter",
        metavar="'size>1GB'",
        help="only artifacts of which this holds (repeatable): size, age, idle, hits, pinned, id, "
        "model, dtype, target, mode, builder.torch",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="say what would be done, and do nothing")]
StoredSome = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Argument(
        metavar="[ID|MODEL]...",
        help="artifact ids or their beginnings, or models",
        show_default=False,
    ),
]
AllStored = Annotated[bool, typer.Option("--all", help="every artifact there is")]
Jobs = Annotated[
    int,
    typer.Option("--jobs", "-j", metavar="N", min=0, help="compile processes; 0 chooses"),
]
Keep = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--keep", metavar="DIR", help="keep intermediate files in DIR", parser=_named_folder
    ),
]
Json = Annotated[bool, typer.Option("--json", help="one JSON object on standard output")]


def check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a word that is not one of `choices`; UsageError with the closest one."""
    if value not in choices:
        from vcc.cache.errors import UsageError
        from vcc.engine.config.checks import suggestion

        raise UsageError(f'unknown {option} "{value}"', "", suggestion(value, choices))
