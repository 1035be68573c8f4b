"""Bytes on the device are what torch makes of the bindings; the driver is the double."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from support.fake_cuda import Fake
from support.fp8_checkpoints import make_fp8_checkpoint
from support.weight_cases import BINDINGS, at, checkpoint, homes, size_of

from vcc.cache.errors import DeviceError, IntegrityError, ModelError
from vcc.engine.models.bindings import EMBED, HEAD, bindings_of, parameter_dtypes
from vcc.engine.models.checkpoint import tensors_in
from vcc.engine.models.expressions import ChannelsLast, FromTensor, Tied, Transpose
from vcc.engine.models.source import open_source
from vcc.engine.models.weights import load_weights
from vcc.engine.native import functions
from vcc.engine.runtime.player.weight_plan import Home, WeightPlan, plan_weights
from vcc.engine.runtime.player.weights import check_stored_heads, load

C = functions(
    {
        "vcc_device_open": "str i32 -> ptr",
        "vcc_device_synchronize": "ptr",
        "vcc_device_close": "ptr",
    }
)


class Device:
    """An open double, with memory whose bytes can be looked at: its addresses are the host's."""

    def __init__(self, fake: Fake) -> None:
        self.fake = fake
        self.handle = C.vcc_device_open(fake.path, 0)

    def allocate(self, size: int) -> int:
        C.vcc_device_synchronize(self.handle)  # makes its context this thread's
        address = ctypes.c_uint64()
        library = ctypes.CDLL(self.fake.path)
        assert library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0
        ctypes.memset(address.value, 0xFF, size)
        return address.value


@pytest.fixture
def device() -> Iterator[Device]:
    fake = Fake()
    fake.reset()
    opened = Device(fake)
    yield opened
    fake.clear()
    C.vcc_device_close(opened.handle)
    fake.reset()


def upload(device: Device, plan: WeightPlan, size: int, **options: int) -> bytes:
    """The region's bytes after a plan."""
    base = device.allocate(size)
    report = load(plan, device.handle, base, size, **options)
    assert report.bytes == plan.bytes
    return ctypes.string_at(base, size)


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("wanted", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("slot", [64, 200, 1 << 20])
def test_every_form_of_binding_arrives(
    device: Device, tmp_path: Path, stored: torch.dtype, wanted: torch.dtype, slot: int
) -> None:
    """Small slots cut every copy: rows, columns and turned ones, one or some planes a piece."""
    tensors = checkpoint(tmp_path, stored)
    values, _ = load_weights(BINDINGS, tensors, wanted)
    places = homes(values)
    plan = plan_weights(places, BINDINGS, tensors, {})
    region = upload(device, plan, size_of(places), slot_bytes=slot, readers=3)
    for home in places:
        assert torch.equal(at(region, home), values[home.name]), home.name


@pytest.mark.parametrize("arch", ["llama", "mixtral"])
@pytest.mark.parametrize("layout", ["tensor-static", "channel-token", "fp8-block"])
def test_fp8_weights_arrive_as_they_are_and_scales_in_fp32(
    device: Device, tmp_path: Path, layout: str, arch: str
) -> None:
    make_fp8_checkpoint(tmp_path, arch, layout, scale_dtype=torch.bfloat16, experts=True)
    source = open_source(str(tmp_path))
    bindings = bindings_of(source.spec)
    dtypes = {name: getattr(torch, one) for name, one in parameter_dtypes(source.spec).items()}
    values, _ = load_weights(bindings, source.tensors, torch.bfloat16, dtypes)
    places = homes(values, bindings)
    plan = plan_weights(places, bindings, source.tensors, {})
    region = upload(device, plan, size_of(places))
    for home in places:
        found, right = at(region, home), values[home.name]
        assert found.dtype == right.dtype
        assert torch.equal(found.view(torch.uint8), right.contiguous().view(torch.uint8)), home.name
    kinds = {home.dtype for home in places}
    assert kinds == {"float8_e4m3fn", "float32", "bfloat16"}


EDGES = [
    *(0.0, -0.0, 1.0, -1.0, 65504.0, 65519.9, 65520.0, -65536.0, 1e38, 3.4e38, -3.4e38),
    *(float("inf"), float("-inf"), 2.0**-14, 2.0**-15, 2.0**-24, 2.0**-25, 2.9e-8, 1e-40, 6.1e-5),
    *(1.00390625, 1.001953125, 1.00048828125, 0.1, 1 / 3),
]


@pytest.mark.parametrize("stored", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("wanted", [torch.float32, torch.float16, torch.bfloat16])
def test_conversions_are_those_of_torch(
    device: Device, tmp_path: Path, stored: torch.dtype, wanted: torch.dtype
) -> None:
    torch.manual_seed(1)
    some = torch.cat(
        (torch.tensor(EDGES), torch.randn(5000) * 10.0 ** torch.randint(-9, 5, (5000,)))
    )
    all_bits = torch.arange(65536, dtype=torch.int32).to(torch.int16)
    value = some.to(stored) if stored.itemsize > 2 else all_bits.view(stored)
    save_file({"x": value}, tmp_path / "model.safetensors")
    home = Home("x", str(wanted).removeprefix("torch."), tuple(value.shape), 0)
    bindings = {"x": FromTensor("x")}
    plan = plan_weights([home], bindings, tensors_in(tmp_path), {})
    found, right = at(upload(device, plan, home.bytes), home), value.to(wanted)
    assert torch.equal(found.isnan(), right.isnan())
    kept = ~right.isnan()
    assert torch.equal(found[kept], right[kept])
    assert torch.equal(found[kept].signbit(), right[kept].signbit())


def test_constants_and_gaps(device: Device) -> None:
    places = [Home("a", "float32", (2,), 0, True), Home("b", "int8", (3,), 256, True)]
    plan = plan_weights(places, {}, {}, {"a": b"12345678", "b": b"abc"})
    region = upload(device, plan, 300)
    assert (region[:8], region[256:259]) == (b"12345678", b"abc")
    assert set(region[8:256] + region[259:]) == {0xFF}


def test_nothing_stays_pinned(device: Device, tmp_path: Path) -> None:
    plan, size = _plan(tmp_path)
    upload(device, plan, size, readers=4, slot_bytes=256)
    counted = {name: device.fake.count(name) for name in ("cuMemHostAlloc", "cuMemFreeHost")}
    assert counted["cuMemHostAlloc"] == counted["cuMemFreeHost"] > 0
    assert device.fake.count("cuStreamCreate") == device.fake.count("cuStreamDestroy")
    assert device.fake.count("cuEventCreate") == device.fake.count("cuEventDestroy")


def _plan(folder: Path) -> tuple[WeightPlan, int]:
    tensors = checkpoint(folder)
    values, _ = load_weights(BINDINGS, tensors, torch.bfloat16)
    places = homes(values)
    return plan_weights(places, BINDINGS, tensors, {}), size_of(places)


@pytest.mark.parametrize(
    ("name", "nth"),
    [
        *(("cuStreamCreate", 1), ("cuEventCreate", 1), ("cuEventCreate", 2), ("cuMemHostAlloc", 1)),
        *(("cuMemcpyHtoDAsync", 1), ("cuMemcpyHtoDAsync", 7), ("cuEventRecord", 2)),
        *(("cuEventSynchronize", 1), ("cuEventSynchronize", 3)),
    ],
)
def test_a_failure_of_the_driver_is_an_error_and_leaves_nothing(
    device: Device, tmp_path: Path, name: str, nth: int
) -> None:
    plan, size = _plan(tmp_path)
    base = device.allocate(size)
    device.fake.clear()
    device.fake.fail(name, nth)
    with pytest.raises(DeviceError):
        load(plan, device.handle, base, size, readers=2, slot_bytes=256)
    device.fake.clear()
    load(plan, device.handle, base, size, readers=2, slot_bytes=256)
    counted = [device.fake.count(n) for n in ("cuMemHostAlloc", "cuMemFreeHost")]
    assert counted[0] == counted[1]


def test_a_file_that_became_shorter_is_named(device: Device, tmp_path: Path) -> None:
    plan, size = _plan(tmp_path)
    victim = plan.files[1]
    with victim.open("r+b") as stream:
        stream.truncate(victim.stat().st_size - 2)
    with pytest.raises(ModelError, match="is only in part here") as told:
        load(plan, device.handle, device.allocate(size), size)
    assert str(victim) in told.value.what


def test_a_file_that_is_gone_is_named(device: Device, tmp_path: Path) -> None:
    plan, size = _plan(tmp_path)
    plan.files[0].unlink()
    with pytest.raises(ModelError, match="No such file"):
        load(plan, device.handle, device.allocate(size), size)


def _changed(plan: WeightPlan, field: int, value: int) -> WeightPlan:
    """The plan with one number of its first copy replaced; fields as in weight_plan.py."""
    kinds = [("u4", 0), ("u2", 4), ("u2", 6), ("u4", 8), ("u4", 12)]
    kinds += [("u8", 16 + 8 * i) for i in range(6)]
    kind, offset = kinds[field]
    copies = bytearray(plan.copies)
    copies[offset : offset + int(kind[1])] = value.to_bytes(int(kind[1]), "little")
    return replace(plan, copies=bytes(copies))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((0, 3), (0, 0xFFFFFFFF), (1, 12), (1, 6), (2, 65535), (3, 2), (4, 1)),
        *((5, 1 << 40), (5, 2**64 - 1), (6, 1 << 30), (6, 2**64 - 2)),
        *((7, 0), (7, 1 << 63), (8, 0), (8, 2**64 - 1), (9, 0), (10, 0)),
    ],
)
def test_copies_that_leave_file_or_region_are_refused(
    device: Device, tmp_path: Path, field: int, value: int
) -> None:
    plan, size = _plan(tmp_path)
    device.fake.clear()
    with pytest.raises(IntegrityError, match="weight copy is refused"):
        load(_changed(plan, field, value), device.handle, device.allocate(size), size)
    assert device.fake.count("cuMemcpyHtoDAsync") == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [(4, 6), (4, 2**32 - 1), (3, 0), (5, 1 << 40), (6, 1 << 30), (9, 16), (10, 10)],
)
def test_planes_that_have_gaps_or_leave_file_or_region_are_refused(
    device: Device, tmp_path: Path, field: int, value: int
) -> None:
    """Six filters of four channels and six taps, of bf16: rows of 12 bytes and lines of 8."""
    tensors = checkpoint(tmp_path)
    home = Home("x", "bfloat16", (6, 3, 2, 4), 0)
    plan = plan_weights([home], {"x": ChannelsLast(FromTensor("filters"))}, tensors, {})
    assert (plan.count, plan.bytes) == (1, 288)
    base = device.allocate(home.bytes)
    device.fake.clear()
    with pytest.raises(IntegrityError, match="weight copy is refused"):
        load(_changed(plan, field, value), device.handle, base, home.bytes)
    assert device.fake.count("cuMemcpyHtoDAsync") == 0


def test_many_readers_with_little_to_read(device: Device, tmp_path: Path) -> None:
    value = torch.arange(6, dtype=torch.bfloat16).view(2, 3)
    save_file({"x": value}, tmp_path / "model.safetensors")
    home = Home("x", "bfloat16", (3, 2), 0)
    plan = plan_weights([home], {"x": Transpose(FromTensor("x"))}, tensors_in(tmp_path), {})
    found = at(upload(device, plan, home.bytes, readers=64), home)
    assert torch.equal(found, value.T)


def test_a_stored_head_must_be_the_embedding_that_it_is_tied_to(tmp_path: Path) -> None:
    bindings = {"embed.weight": FromTensor(EMBED), "head.weight": Tied("embed.weight")}
    value = torch.randn(100, 8)
    for changed, name in ((0.0, "same"), (1.0, "other")):
        (folder := tmp_path / name).mkdir()
        head = value.clone()
        head[-1, -1] += changed
        save_file({EMBED: value, HEAD: head}, folder / "model.safetensors")
    check_stored_heads(bindings, tensors_in(tmp_path / "same"), chunk=1000)
    with pytest.raises(ModelError, match="differs from"):
        check_stored_heads(bindings, tensors_in(tmp_path / "other"), chunk=1000)
    check_stored_heads({"head.weight": FromTensor(HEAD)}, tensors_in(tmp_path / "other"))
