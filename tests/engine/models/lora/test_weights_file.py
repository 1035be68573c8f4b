"""An adapter's file is the one that was checked whenever it is read, or it is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from support.adapters import make_adapter
from support.checkpoints import make_checkpoint
from support.decoders import spec

from vcc.cache.errors import ModelError
from vcc.engine.models.lora.adapter import open_adapter
from vcc.engine.models.lora.spec import LoraSpec, projections
from vcc.engine.models.lora.weights_file import WeightsFile
from vcc.engine.models.tensor_info import TensorInfo
from vcc.engine.runtime.adapter_writer import empty_stacks, slot_writer
from vcc.engine.runtime.turn import Turn

LORA = LoraSpec(slots=1, rank=8)
LLAMA = spec("llama", 1)


def overwrite(file: Path) -> None:
    """As many other bytes in place, and the time of writing set back."""
    before = file.stat()
    with file.open("r+b") as stream:
        stream.seek(before.st_size // 2)
        stream.write(bytes(before.st_size - before.st_size // 2))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(file.read_bytes())
    other.replace(file)


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "overwritten": (overwrite, "written or replaced"),
    "replaced": (replace, "written or replaced"),
    "cut": (lambda file: os.truncate(file, 4096), "written or replaced"),
    "gone": (Path.unlink, "cannot be read any more"),
    "a pipe": (pipe, "written or replaced"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_since_the_load_is_not_written(change: str, tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "base", "llama", num_hidden_layers=1)
    folder = make_adapter(tmp_path / "one", tmp_path / "base", rank=4)
    adapter = open_adapter(folder, projections(LLAMA, LORA), LORA)
    write = slot_writer(LLAMA, LORA, empty_stacks(LLAMA, LORA, torch.float32), Turn())
    write(0, adapter)
    edit, why = CHANGES[change]
    edit(folder / "adapter_model.safetensors")
    with pytest.raises(ModelError, match="is not the file that was loaded") as caught:
        write(0, adapter)
    assert why in caught.value.why
    assert "load it again" in caught.value.hint


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    values = np.arange(4, dtype=np.float32)
    file.write_bytes(values.tobytes())
    info = TensorInfo("float32", (4,), file, 0, 16)

    def cut_behind(file: Path) -> None:
        with WeightsFile.seen(file).reading() as read:
            assert bytes(read(info)) == values.tobytes()
            os.truncate(file, 15)

    with pytest.raises(ModelError, match="is not the file that was loaded"):
        cut_behind(file)
    with pytest.raises(ModelError) as caught, WeightsFile.seen(file).reading() as read:
        read(info)
    assert "it was cut" in caught.value.why
