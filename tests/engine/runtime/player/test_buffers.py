"""IoBuffer: DLPack and the CUDA array interface of device tensors."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest
from support.fake_cuda.fixtures import RawArena
from support.player_runner import running
from support.step_tables import SEQS, VOCAB

from vcc.cache.errors import UsageError
from vcc.engine import native
from vcc.engine.config.modes import GraphMode
from vcc.engine.runtime.player.buffers import IoBuffer
from vcc.engine.runtime.player.layout import Tensor


def test_names_shapes_and_addresses(arena: RawArena) -> None:
    with running(arena, GraphMode.NONE) as runner:
        assert "kv_cache_0" not in runner.io
        assert "w" not in runner.io
        seed = runner.io["seed"].__cuda_array_interface__
        assert (seed["shape"], seed["typestr"], seed["version"]) == ((SEQS,), "<i8", 3)
        assert seed["data"] == (runner.io["seed"].tensor.address, False)
        assert runner.io["logits"].shape == (SEQS, VOCAB)
        assert runner.io["logits"].__dlpack_device__() == (2, 0)


def test_a_capsule_says_what_it_holds_and_keeps_its_owner(arena: RawArena) -> None:
    with running(arena, GraphMode.NONE) as runner:
        buffer = runner.io["logits"]
        capsule = buffer.__dlpack__()
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        made = native._DlTensor.from_address(get(capsule, b"dltensor"))
        assert made.data == buffer.tensor.address
        assert (made.device_type, made.ndim, made.code, made.bits) == (2, 2, 4, 16)
        assert (made.shape[0], made.shape[1]) == (SEQS, VOCAB)
        assert len(native._LENT) == 1
        del capsule, made
        gc.collect()
        assert not native._LENT


def test_a_taken_capsule_is_freed_by_its_taker(arena: RawArena) -> None:
    with running(arena, GraphMode.NONE) as runner:
        capsule = runner.io["token"].__dlpack__()
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        place = get(capsule, b"dltensor")
        used = ctypes.c_char_p(b"used_dltensor")
        rename = ctypes.pythonapi.PyCapsule_SetName
        rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
        rename(capsule, used)
        del capsule
        gc.collect()
        assert place in native._LENT
        native._returned(place)
        assert not native._LENT


def test_a_dtype_without_a_name_is_refused() -> None:
    tensor = Tensor("x", "x", "input", "float8_e5m2", (4,), 0x1000, -1)
    with pytest.raises(UsageError, match="float8_e5m2"):
        IoBuffer(None, tensor, 0).__dlpack__()


def test_a_copy_or_another_device_is_refused_as_the_protocol_says() -> None:
    tensor = Tensor("x", "x", "input", "float32", (4,), 0x1000, -1)
    buffer = IoBuffer(None, tensor, 0)
    with pytest.raises(BufferError, match="x lies on cuda:0"):
        np.from_dlpack(buffer, device="cpu")
    with pytest.raises(BufferError, match="a copy"):
        buffer.__dlpack__(copy=True)
    assert buffer.__dlpack__(dl_device=buffer.__dlpack_device__(), max_version=(1, 0))
