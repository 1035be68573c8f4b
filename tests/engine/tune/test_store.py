"""The GEMM store: what is published comes back, versions, damage, choices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vcc.cache import canonical
from vcc.cache.canonical import FormatError
from vcc.cache.digest import Digest
from vcc.cache.shelf import Shelf
from vcc.engine.tune.gpu import Gpu
from vcc.engine.tune.index import SelfTest, decode_index, encode_index
from vcc.engine.tune.shapes import GemmShape, Measured
from vcc.engine.tune.store import GemmEntry, GemmStore

H200 = Gpu("NVIDIA H200", 90, 132)
H100 = Gpu("NVIDIA H100 PCIe", 90, 114)
ONE, OTHER = GemmShape(1, 64, 32, "bfloat16"), GemmShape(8, 64, 32, "bfloat16", True)
PASSED, FAILED = SelfTest(True, 2), SelfTest(False, 2, "1x64x32: 3 bytes differ")
VARIANTS = "c" * 64


def entry(shape: GemmShape, table: bytes = b"table", code: bytes = b"code") -> GemmEntry:
    return GemmEntry(shape, table, {Digest.of(code).hex: code})


@pytest.fixture
def store(tmp_path: Path) -> GemmStore:
    return GemmStore(tmp_path / "store")


def test_an_empty_place_has_nothing_and_stays_empty(store: GemmStore) -> None:
    assert store.entries(H200) == ()
    assert store.known(H200) == frozenset()
    assert store.gpus() == ()
    assert not store.root.exists()


def test_products_come_back_with_their_code(store: GemmStore) -> None:
    published = [entry(ONE, b"first", b"x"), entry(OTHER, b"second", b"y")]
    store.publish_products(H200, 130100, published, PASSED)
    assert store.entries(H200) == tuple(published)
    assert store.known(H200) == {ONE, OTHER}
    assert store.gpus() == (H200,)


def test_only_wanted_products_are_read(store: GemmStore) -> None:
    store.publish_products(H200, 130100, [entry(ONE), entry(OTHER)], PASSED)
    assert [one.shape for one in store.entries(H200, [OTHER])] == [OTHER]


def test_an_index_that_breaks_the_grammar_hides_no_other(store: GemmStore) -> None:
    store.publish_products(H200, 130100, [entry(ONE)], PASSED)
    shelf = Shelf(store.root, ("gemm", H200.key.digest.hex))
    shelf.publish({"kind": "products", "format": 2, "self_test": None}, {})
    assert store.gpus() == (H200,)
    assert store.known(H200) == {ONE}


def test_models_of_gpus_are_apart(store: GemmStore) -> None:
    store.publish_products(H200, 130100, [entry(ONE)], PASSED)
    assert store.entries(H100) == ()


def test_the_latest_library_counts_and_earlier_recordings_fill_in(store: GemmStore) -> None:
    store.publish_products(H200, 130200, [entry(ONE, b"new")], PASSED)
    store.publish_products(H200, 130100, [entry(ONE, b"old"), entry(OTHER, b"old")], PASSED)
    assert [one.table for one in store.entries(H200)] == [b"new", b"old"]
    assert store.known(H200, 130200) == {ONE}


def test_without_a_passed_self_test_only_the_result_is_kept(store: GemmStore) -> None:
    store.publish_products(H200, 130100, [entry(ONE)], FAILED)
    assert store.entries(H200) == ()
    assert store.self_tests(H200) == {130100: SelfTest(False, 2, FAILED.why)}


def bundle(store: GemmStore, *parts: bytes) -> Path:
    digest = Digest.of(b"".join(parts)).hex
    return store.root / "v1" / "cas" / "sha256" / digest[:2] / digest


@pytest.mark.parametrize("which", [b"tables", b"cubin"])
def test_a_product_with_a_damaged_part_is_not_used(store: GemmStore, which: bytes) -> None:
    store.publish_products(H200, 130100, [entry(OTHER, b"good", b"other code")], PASSED)
    store.publish_products(H200, 130200, [entry(ONE, b"tables", b"cubin")], PASSED)
    file = bundle(store, b"tables", b"cubin")
    file.write_bytes(file.read_bytes().replace(which, which.upper()))
    assert [one.shape for one in store.entries(H200)] == [OTHER]
    assert store.known(H200) == {OTHER}


def test_damage_is_told_once_and_mended_by_a_recording_of_the_same_bytes(
    store: GemmStore, caplog: pytest.LogCaptureFixture
) -> None:
    both = [entry(ONE, b"first"), entry(OTHER, b"second")]
    store.publish_products(H200, 130100, both, PASSED)
    file = bundle(store, b"firstsecond", b"code")
    file.write_bytes(file.read_bytes().replace(b"code", b"CODE"))
    assert store.entries(H200) == ()
    assert caplog.text.count("is not used") == 1
    assert "vcc tune" in caplog.text
    assert store.known(H200, 130100) == frozenset()
    store.publish_products(H200, 130100, both, PASSED)
    assert store.entries(H200) == tuple(both)
    assert store.known(H200, 130100) == {ONE, OTHER}


def test_an_earlier_recording_stands_in_for_a_damaged_one(store: GemmStore) -> None:
    store.publish_products(H200, 130100, [entry(ONE, b"old")], PASSED)
    store.publish_products(H200, 130200, [entry(ONE, b"new"), entry(OTHER, b"n", b"k")], PASSED)
    file = bundle(store, b"newn", b"codek")
    file.write_bytes(file.read_bytes().replace(b"code", b"CODE"))
    assert [one.table for one in store.entries(H200)] == [b"old", b"n"]


def test_a_missing_bundle_is_a_missing_recording(store: GemmStore) -> None:
    store.publish_products(H200, 130100, [entry(ONE, b"tables")], PASSED)
    bundle(store, b"tables", b"code").unlink()
    assert store.entries(H200) == ()


def test_workspace_and_shared_code_come_back(store: GemmStore) -> None:
    shared = {Digest.of(data).hex: data for data in (b"x", b"y")}
    published = [GemmEntry(ONE, b"1", shared, 7), GemmEntry(OTHER, b"22", shared)]
    store.publish_products(H200, 130100, published, PASSED)
    assert store.entries(H200) == tuple(published)


def test_choices_come_back_for_the_kernels_they_were_measured_with(store: GemmStore) -> None:
    store.publish_choices(H200, 130100, VARIANTS, [Measured(ONE, "triton", 9000, 8500)])
    (choice,) = store.measured(H200, VARIANTS).values()
    assert (choice.route, choice.cublaslt_us, choice.triton_us) == ("triton", 9.0, 8.5)
    assert (choice.gpu, choice.cublaslt) == ("NVIDIA H200", 130100)
    assert store.measured(H200, "d" * 64) == {}


def test_a_way_that_does_not_exist_has_no_time(store: GemmStore) -> None:
    store.publish_choices(H200, 130100, VARIANTS, [Measured(ONE, "cublaslt", 9000, -1)])
    assert store.measured(H200, VARIANTS)[ONE].triton_us is None


def products(**changes: Any) -> bytes:
    row = [1, 64, 32, "bfloat16", False, "", "", 5, 0, [0]]
    index: dict[str, Any] = {
        "kind": "products",
        "format": 5,
        "gpu": ["NVIDIA H200", 90, 132],
        "cublaslt": 130100,
        "created": 1,
        "self_test": {"passed": True, "products": 1, "why": ""},
        "bundle": ["a" * 64, 9],
        "tables": ["c" * 64, "d" * 32, 5],
        "cubins": [["b" * 64, "e" * 32, 4]],
        "products": [row],
    }
    return canonical.encode(index | changes, "index")


def test_a_whole_index_reads_and_others_are_left_alone() -> None:
    assert decode_index(products()) is not None
    assert encode_index(decode_index(products())) == products()
    assert decode_index(products(format=2)) is None
    assert decode_index(products(kind="sonnets")) is None


def test_a_product_of_fp8_reads_with_its_scales() -> None:
    row = [1, 64, 32, "float8_e4m3fn", True, "bfloat16", "rows", 5, 0, [0]]
    found = decode_index(products(products=[row]))
    assert found is not None
    assert found.products[0][:7] == tuple(row[:7])  # type: ignore[union-attr]


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"[" * 200, products() + b" ", b"\xff"])
def test_what_is_no_canonical_index_is_damage(text: bytes) -> None:
    if text == b"[]":
        assert decode_index(text) is None
        return
    with pytest.raises(FormatError):
        decode_index(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"gpu": ["x"]},
        {"cublaslt": -1},
        {"bundle": ["../../etc/passwd", 9]},
        {"bundle": ["a" * 64, 8]},
        {"bundle": ["a" * 64 + "\n", 9]},
        {"tables": ["c" * 64, "d" * 32, 1 << 40]},
        {"tables": ["c" * 64, "d" * 32, -5]},
        {"tables": ["c" * 64, "d" * 31, 5]},
        {"cubins": [["b" * 63, "e" * 32, 4]]},
        {"cubins": []},
        {"products": [[1, 64, 32, "bfloat16", False, "", "", 6, 0, [0]]]},
        {"products": [[1, 64, 32, "bfloat16", False, "", "", 5, 0, [1]]]},
        {"products": [[1, 64, 32, "bfloat16", False, "", "", 5, -1, [0]]]},
        {"products": [[0, 64, 32, "bfloat16", False, "", "", 5, 0, [0]]]},
        {"products": [[1, 64, 32, "complex64", False, "", "", 5, 0, [0]]]},
        {"products": [[1, 64, 32, "bfloat16", 0, "", "", 5, 0, [0]]]},
        {"products": [[True, 64, 32, "bfloat16", False, "", "", 5, 0, [0]]]},
        {"products": [[1, 64]]},
        {"products": [[1, 64, 32, "float8_e4m3fn", False, "", "", 5, 0, [0]]]},
        {"products": [[1, 64, 32, "bfloat16", False, "bfloat16", "rows", 5, 0, [0]]]},
        {"products": [[1, 64, 32, "float8_e4m3fn", False, "bfloat16", "mixed", 5, 0, [0]]]},
        {"products": [[1, 64, 32, "float8_e4m3fn", False, "int8", "rows", 5, 0, [0]]]},
        {"products": [[1, 64, 32, "bfloat16", False, 5, 0, [0]]]},
        {"unknown": 1},
        {"self_test": {"passed": True}},
    ],
)
def test_hostile_indexes_are_refused(
    changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert decode_index(products(**changes)) is None
    assert "GEMM store is refused" in caplog.text
