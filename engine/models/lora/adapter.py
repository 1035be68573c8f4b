"""An adapter directory as PEFT writes it, read with the same care as a checkpoint. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vcc.cache.errors import ModelError
from vcc.engine.models.lora.config_file import FILE, AdapterConfig, read_config
from vcc.engine.models.lora.spec import LoraSpec, Projection
from vcc.engine.models.lora.weights_file import WeightsFile
from vcc.engine.models.safetensors_header import read_header
from vcc.engine.models.tensor_info import TensorInfo

WEIGHTS, PICKLED = "adapter_model.safetensors", "adapter_model.bin"
PREFIX = "base_model.model."
SUFFIXES = (".lora_A.weight", ".lora_B.weight")
FLOATS = ("float32", "bfloat16", "float16")
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Pair:
    """Both matrices of one module: a [rank, inner], b [outer, rank], and the factor on b @ a."""

    a: TensorInfo
    b: TensorInfo
    scale: float

    @property
    def rank(self) -> int:
        """Rows of a."""
        return self.a.shape[0]


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter whose files were read and fit a decoder.

    Attributes:
        directory: where it is.
        pairs: by module, as checkpoints call it.
        weights: the file of their matrices, as it was when its header was read.
    """

    directory: Path
    pairs: Mapping[str, Pair]
    weights: WeightsFile


def open_adapter(directory: Path, places: Sequence[Projection], lora: LoraSpec) -> Adapter:
    """Read an adapter's configuration and header, and hold them against a decoder.

    Args:
        directory: has `adapter_config.json` and `adapter_model.safetensors`.
        places: the decoder's projections that adapters may change.
        lora: what the code was compiled for.

    Raises:
        ModelError: a file is missing, malformed or pickled, the adapter is of a kind that is not
            supported, of another model, or of a rank above the declared one.
    """
    if not directory.is_dir():
        raise ModelError(
            f"no adapter at {directory}",
            "there is no such directory",
            f"give a directory with {FILE} and {WEIGHTS}, as PEFT saves it",
        )
    config = read_config(directory)
    weights = _weights(directory)
    tensors = _matrices(directory, read_header(weights.path))
    differences = list(_differences(config, tensors, places))
    if differences:
        raise _another_model(directory, differences)
    pairs = {
        module: Pair(a, b, config.scale_of(module))
        for module, (a, b) in tensors.items()
        if a is not None and b is not None  # both are there: else it was a difference
    }
    highest = max(pairs, key=lambda module: pairs[module].rank)
    if pairs[highest].rank > lora.rank:
        raise ModelError(
            f"the adapter in {directory} has rank {pairs[highest].rank}",
            f"the code was compiled for ranks up to {lora.rank}",
            f"compile with --max-lora-rank {pairs[highest].rank}",
        )
    return Adapter(directory, pairs, weights)


def _weights(directory: Path) -> WeightsFile:
    file = directory / WEIGHTS
    if file.is_file():
        return WeightsFile.seen(file)
    if (directory / PICKLED).is_file():
        raise ModelError(
            f"the adapter in {directory} is not in safetensors form",
            f"{PICKLED} is a pickle, and loading a pickle runs code that it contains",
            "save it again where you trust it, with PEFT's save_pretrained(DIR)",
        )
    raise ModelError(f"no weights in {directory}", f"{WEIGHTS} is not there", "finish the download")


def _matrices(
    directory: Path, tensors: Mapping[str, TensorInfo]
) -> dict[str, list[TensorInfo | None]]:
    """Both matrices by module; None for one that is missing."""
    found: dict[str, list[TensorInfo | None]] = {}
    strange = []
    for name, info in tensors.items():
        suffix = next((one for one in SUFFIXES if name.endswith(one)), "")
        if not suffix or not name.startswith(PREFIX):
            strange.append(name)
            continue
        module = name[len(PREFIX) : -len(suffix)]
        found.setdefault(module, [None, None])[SUFFIXES.index(suffix)] = info
    if strange:
        raise _another_model(directory, [f"{name[:120]} {_why(name)}" for name in strange])
    if not found:
        raise _another_model(directory, ["it holds no matrices"])
    return found


def _why(name: str) -> str:
    if "lora_magnitude_vector" in name:
        return "is of DoRA, which is not supported"
    if "lora_embedding" in name:
        return "adapts embeddings, which is not supported"
    return f"is no tensor of LoRA: {PREFIX}MODULE{SUFFIXES[0]}"


def _differences(
    config: AdapterConfig,
    tensors: Mapping[str, Sequence[TensorInfo | None]],
    places: Sequence[Projection],
) -> Iterator[str]:
    sizes = {
        module: (width, one.inner)
        for one in places
        for module, width in zip(one.modules, one.widths, strict=True)
    }
    for module, (a, b) in tensors.items():
        if module not in sizes:
            yield f"{module[:120]} {_no_place(module)}"
            continue
        if field := config.coverage.lacks(module):
            yield f"{module} has matrices, but {field} of {FILE} leaves it out"
        (outer, inner), rank = sizes[module], config.rank_of(module)
        for info, suffix, shape in (
            (a, SUFFIXES[0], (rank, inner)),
            (b, SUFFIXES[1], (outer, rank)),
        ):
            if info is None:
                yield f"{module}{suffix} is missing"
            elif info.shape != shape:
                yield f"{module}{suffix} is {list(info.shape)}, it would be {list(shape)}"
            elif info.dtype not in FLOATS:
                yield f"{module}{suffix} is {info.dtype}, matrices are floating-point"


def _no_place(module: str) -> str:
    if ".experts" in module:
        return "is of experts, whose adapters are not supported"
    if module.endswith(("lm_head", "embed_tokens")):
        return "is of the vocabulary, whose adapters are not supported"
    return "is no projection of this model that adapters are compiled for"


def _another_model(directory: Path, differences: Sequence[str]) -> ModelError:
    more = len(differences) - SHOWN
    shown = "; ".join(differences[:SHOWN]) + (f"; and {more} more" if more > 0 else "")
    return ModelError(
        f"the adapter in {directory} does not fit the model",
        shown,
        "use an adapter of this model, or compile for its target modules",
    )
