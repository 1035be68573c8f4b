"""Source: a model as the user named it, opened without torch and without running its code.

demo                 the small trained model that ships with vcc
path/to/directory    a Hugging Face directory
owner/name           a Hugging Face id, from the local hub cache or downloaded
package.module:make  a function that returns an nn.Module
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vcc.cache.errors import ModelError
from vcc.cache.key import Key
from vcc.engine.config.modes import KvDtype
from vcc.engine.models.architectures import DecoderSpec, spec_of
from vcc.engine.models.bindings import laid_out
from vcc.engine.models.checkpoint import GGUF, is_gguf, tensors_in
from vcc.engine.models.checkpoint_forward import (
    checkpoint_ref,
    declared_shapes,
    default_shapes,
    forward_name,
)
from vcc.engine.models.hf_directory import (
    NO_WEIGHTS,
    HfDirectory,
    declared_dtype,
    read_directory,
    weights_place,
)
from vcc.engine.models.hub import HUB_FOLDER, HUB_ID, HubPlace, Snapshot, find_model, hub_place
from vcc.engine.models.module_entries import module_entries
from vcc.engine.models.quant.kv import KvSpec
from vcc.engine.models.quant.spec import FP8
from vcc.engine.models.remote_code import code_digest
from vcc.engine.models.shapes import InputShape, parse_shapes
from vcc.engine.models.spec_entries import decoder_entries
from vcc.engine.models.tensor_info import TensorInfo

if TYPE_CHECKING:
    from vcc.engine.models.factory import FactoryRef

DEMO = Path(__file__).with_name("demo")
LONGEST_PART = 255
"""Bytes of a file name on Linux; a longer one cannot even be asked for."""

_FORMS = "give a directory, a Hugging Face id, module:factory, or demo"
_DEMO_HINT = f'did you mean "demo"? {_FORMS}'
_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True, slots=True)
class Source:
    """A model that can be compiled or run.

    Attributes:
        kind: `decoder` (built-in, paged KV) or `module` (any nn.Module).
        name: as the user gave it.
        directory: where config, tokenizer and weights are; None for a module.
        revision: the hub commit, or None.
        config: `config.json`; empty for a module.
        tensors: checkpoint tensors by name; their file is None when opened without weights.
        generation: `generation_config.json` over the config's token ids.
        tokenizer: path of `tokenizer.json`, or None.
        factory: `module:function` of a module.
        shapes: input shapes of a module.
        code: (module, SHA-256) of the factory's own source files.
        state: (label, text) of what else a module is made of, where it is there already.
        length: tokens of the longest sequence, once it is settled; 0 before.
        kv_cache: element type of the KV cache, once it is settled; None is the checkpoint's.
    """

    kind: Literal["decoder", "module"]
    name: str
    directory: Path | None = None
    revision: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, TensorInfo] = field(default_factory=dict)
    generation: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: Path | None = None
    factory: FactoryRef | None = None
    shapes: tuple[InputShape, ...] = ()
    code: tuple[tuple[str, str], ...] = ()
    state: tuple[tuple[str, str], ...] = ()
    length: int = 0
    kv_cache: KvDtype | None = None

    @property
    def spec(self) -> DecoderSpec:
        """The decoder's sizes and switches, for `length` if that is settled; for kind `decoder`."""
        found = laid_out(spec_of(self.config), self.tensors)
        if self.kv_cache is not None and found.kv is None:
            found = replace(found, kv=KvSpec())
        return found.for_length(self.length) if self.length else found

    def for_length(self, tokens: int | None) -> Source:
        """The same model for sequences of at most so many tokens."""
        return replace(self, length=tokens or 0)

    def with_cache(self, kv_cache: KvDtype | None) -> Source:
        """The same model over a KV cache of this element type."""
        return replace(self, kv_cache=kv_cache)

    @property
    def title(self) -> str:
        """What its artifacts are called, never a path of this machine.

        `demo`, the id of the Hub (also for a snapshot in the Hub's cache), `module:factory`, or the
        last part of the directory.
        """
        if self.directory is None or self.revision is not None:
            return self.name
        parts = Path(os.path.abspath(Path(self.name).expanduser())).parts
        hub, folder = parts[-3:-2], parts[-2:-1]
        if folder == ("snapshots",) and hub and hub[0].startswith(HUB_FOLDER):
            return hub[0].removeprefix(HUB_FOLDER).replace("--", "/")
        return parts[-1]

    @property
    def is_checkpoint(self) -> bool:
        """Whether it is a plain forward whose config and weights are in a directory."""
        return self.kind == "module" and self.directory is not None

    @property
    def has_weights(self) -> bool:
        """Whether tensor data is at hand."""
        return any(info.file is not None for info in self.tensors.values())

    @property
    def dtype(self) -> str | None:
        """The dtype of the weights as the config declares it, else as the checkpoint stores it."""
        stored = (info.dtype for info in self.tensors.values() if info.dtype != FP8)
        return declared_dtype(self.config) or next(stored, None)

    @property
    def parameters(self) -> int:
        """Elements of all weights; 0 for a module, whose weights are not known before it runs."""
        return sum(math.prod(info.shape) for info in self.tensors.values())

    def model_key(self) -> Key:
        """What identifies the model in a request: no path, no revision, no dtype.

        A decoder is known by its spec and the tensors it needs, so a build without weights and a
        run on the real checkpoint ask for the same. A module is known by its source files.
        """
        if self.kind == "module":
            return Key((("model.kind", self.kind), *module_entries(self)))
        entries = decoder_entries(self.for_length(0).with_cache(None).spec)
        if self.code:
            entries += (("model.remote_code", code_digest(self.code)),)
        return Key((("model.kind", self.kind), *entries))


def open_source(
    name: str,
    *,
    revision: str | None = None,
    weights: str | None = None,
    trust_remote_code: bool = False,
    shapes: Sequence[str] = (),
    hub: HubPlace | None = None,
) -> Source:
    """Open a model by what the user typed.

    Args:
        name: `demo`, a directory, a Hugging Face id, or `module:factory`.
        revision: branch, tag or commit of a Hugging Face id.
        weights: None for the model's own, `none` for no data, or a directory or file.
        trust_remote_code: take a checkpoint that has code of its own, which is never run: the
            built-in decoder stands for it, and the code's digest is part of the request.
        shapes: input shapes of a factory, `name=8x128` or `name=1-8x128`.
        hub: where the hub cache is; None reads the environment.

    Raises:
        ModelError: the model is missing, in part here, unsupported or contradictory.
        UsageError: options that do not go with this kind of model.
    """
    place = Path(name).expanduser()
    if not name:
        raise ModelError("no model was named", "the name is empty", _FORMS)
    if any(len(os.fsencode(part)) > LONGEST_PART for part in place.parts):
        raise ModelError(f"no model at {name[:40]}…", "the name is too long", _FORMS)
    if _FACTORY.fullmatch(name) and not place.exists():
        return _module(name, shapes, weights)
    if name == "demo":
        return _in_directory(name, _demo(), shapes, weights)
    if place.is_dir():
        return _in_directory(name, place, shapes, weights, trusted=trust_remote_code)
    if HUB_ID.fullmatch(name) and not place.exists():
        found = _on_hub(name, revision, hub or hub_place(), wants_weights=weights is None)
        told = (shapes, weights, found.commit, trust_remote_code)
        return _in_directory(name, found.directory, *told)
    raise _missing(name, place)


def check_weights(source: Source) -> None:
    """Raise ModelError for a model that was opened without tensor data."""
    if not source.has_weights:
        raise ModelError(
            f"{source.name} has no weights here",
            "an artifact holds code, never weights",
            "give a checkpoint: a directory with *.safetensors, or --weights PATH",
        )


def _in_directory(
    name: str,
    place: Path,
    shapes: Sequence[str],
    weights: str | None,
    revision: str | None = None,
    trusted: bool = False,
) -> Source:
    found = read_directory(place, weights, trusted)
    if forward_name(found.config) is None:
        if shapes:
            raise ModelError(
                "--shape goes with plain forwards only",
                f"{name} has its own inputs",
                "leave --shape out",
            )
        return _source("decoder", name, place, found, revision)
    source = _source("module", name, place, found, revision)
    declared = declared_shapes(shapes) or default_shapes(found.config)
    return replace(source, factory=checkpoint_ref(found.config), shapes=declared)


def _source(
    kind: Literal["decoder", "module"],
    name: str,
    place: Path,
    found: HfDirectory,
    revision: str | None,
) -> Source:
    return Source(
        kind=kind,
        name=name,
        directory=place,
        revision=revision,
        config=found.config,
        tensors=found.tensors,
        generation=found.generation,
        tokenizer=found.tokenizer,
        code=found.code,
    )


def _module(name: str, shapes: Sequence[str], weights: str | None) -> Source:
    """A factory's weights are its own unless a safetensors file or directory replaces them."""
    from vcc.engine.models.factory import FactoryRef, sources_of  # not for decoders

    ref = FactoryRef.parse(name)
    return Source(
        kind="module",
        name=name,
        tensors={} if weights in (None, NO_WEIGHTS) else tensors_in(weights_place(weights)),
        factory=ref,
        shapes=parse_shapes(shapes),
        code=sources_of(ref),
    )


def _demo() -> Path:
    if not DEMO.is_dir():
        raise ModelError("the demo model is not part of this installation", hint="reinstall vcc")
    return DEMO


def _on_hub(name: str, revision: str | None, place: HubPlace, *, wants_weights: bool) -> Snapshot:
    """A hub model; one that is not there and looks like a misspelt `demo` says so."""
    try:
        return find_model(name, revision, place, wants_weights=wants_weights)
    except ModelError as error:
        if get_close_matches(name.lower(), ["demo"], cutoff=0.7):
            raise ModelError(error.what, error.why, _DEMO_HINT) from error
        raise


def _missing(name: str, place: Path) -> ModelError:
    if place.suffix == GGUF:
        return is_gguf(name)
    why = "it is a file, not a directory" if place.is_file() else "there is no such directory"
    return ModelError(f"no model at {name}", why, _FORMS)
