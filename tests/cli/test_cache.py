"""vcc cache: each command, its JSON, its exit code."""

from __future__ import annotations

import os

import pytest
from support.stores import BLOBS, blob_path, flipped, manifest_of, overwrite, quiet, ref_path

from vcc.cache import roots
from vcc.cache.digest import Digest
from vcc.cache.errors import Exit
from vcc.cache.single_flight import single_flight


@pytest.fixture
def two(own_store):
    """Two artifacts: one of fp32, one of bf16 with a blob of its own."""
    store = quiet(own_store)
    first = store.publish(manifest_of("full", 1, title="first", build_ms=1000), BLOBS)
    request = (("model.digest", "0" * 64), ("model.dtype", "bf16"))
    manifest = manifest_of(
        request=request, open_fields=(), title="second", build_ms=9000, created=2
    )
    second = store.publish(manifest, {**BLOBS, "program": bytes(5000)})
    yield first, second
    roots.release()


def test_an_empty_store_has_nothing_and_is_not_made(vcc, own_store):
    words = ("ls", "du", "stats", "gc", "verify", "repair", "unlock")
    for word in words:
        done = vcc("cache", word)
        assert (word, done.code) == (word, 0)
        assert vcc("cache", word, "--json").json["root"] == str(own_store)
    assert not own_store.exists()
    assert vcc("cache", "dir").out == f"{own_store}\n"
    assert vcc("cache", "dir", "--json").json["exists"] is False


def test_ls_lists_what_passes_all_filters(vcc, two):
    first, second = two
    head, *rows = vcc("cache", "ls").out.splitlines()
    assert head.split()[:4] == ["artifact", "age", "idle", "size"]
    assert [row.split()[0] for row in rows] == [second.artifact[:12], first.artifact[:12]]
    found = vcc("cache", "ls", "--json", "--filter", "dtype=bf16", "--filter", "size>1kB").json
    (one,) = found["artifacts"]
    assert (one["artifact"], one["title"], one["build_ms"]) == (second.artifact, "second", 9000)
    assert vcc("cache", "ls", "--filter", "builder.torch=2.0").out.startswith("no artifacts")
    assert vcc("cache", "ls", "--filter", "builder.torch~2.13", "--json").json["size"] > 0


def test_artifacts_whose_pieces_are_not_compiled_have_a_mark(vcc, own_store):
    """What has no pieces has none, whatever back end its request names."""
    store = quiet(own_store)
    for number, (mode, backend) in enumerate(
        [("VCC_COMPILE", "eager"), ("VCC_COMPILE", "inductor"), ("NO_COMPILATION", "eager")]
    ):
        request = (("config.backend", backend), ("config.mode", mode), ("model.digest", "0" * 64))
        manifest = manifest_of(request=request, open_fields=(), title="m", created=9 - number)
        store.publish(manifest, BLOBS)
    for words in (("cache", "ls"), ("inspect", "cache")):
        _, *rows = vcc(*words).out.splitlines()
        assert ["VCC_COMPILE (eager)" in row for row in rows] == [True, False, False]
        assert ["(eager)" in row for row in rows] == [True, False, False]
    found = vcc("cache", "ls", "--json").json["artifacts"]
    assert [one["backend"] for one in found] == ["eager", "inductor", "eager"]


def test_lists_tell_a_cache_in_fp8_and_places_for_adapters(vcc, own_store):
    store = quiet(own_store)
    models = (
        {"model.kv_cache_dtype": "fp8"},
        {"model.enable_lora": "true", "model.max_loras": "3"},
        {"model.enable_lora": "false", "model.max_loras": "null"},
        {"model.kv_cache_dtype": "fp8", "model.enable_lora": "true", "model.max_loras": "4"},
    )
    for number, model in enumerate(models):
        pairs = {"model.digest": "0" * 64, "model.dtype": "bf16", **model}
        request = tuple(sorted(pairs.items()))
        manifest = manifest_of(request=request, open_fields=(), title="m", created=9 - number)
        store.publish(manifest, BLOBS)
    told = ["bf16, fp8 KV ", "bf16, 3 LoRA ", "bf16 ", "bf16, fp8 KV, 4 LoRA "]
    for words in (("cache", "ls"), ("inspect", "cache")):
        _, *rows = vcc(*words).out.splitlines()
        assert all(text in row for text, row in zip(told, rows, strict=True))
    found = vcc("cache", "ls", "--json").json["artifacts"]
    assert [one["kv_cache_dtype"] for one in found] == ["fp8", "", "", "fp8"]
    assert [one["max_loras"] for one in found] == [0, 3, 0, 4]


def test_ls_tells_lower_stores_apart(vcc, two, own_store, monkeypatch, tmp_path):
    monkeypatch.setenv("VCC_LOWER_DIRS", str(own_store))
    quiet(tmp_path / "local").publish(manifest_of(title="local one"), BLOBS)
    done = vcc("cache", "ls", "--cache-dir", str(tmp_path / "local"))
    assert [row.split()[-2] for row in done.out.splitlines()[2:]] == ["1", "1"]  # "lower 1"
    rows = vcc("cache", "ls", "--cache-dir", str(tmp_path / "local"), "--json").json["artifacts"]
    assert [row["tier"] for row in rows] == ["local", "lower 1", "lower 1"]


def test_a_wrong_filter_is_a_usage_error_with_its_column(vcc, two):
    done = vcc("cache", "ls", "--filter", "size>1XB")
    assert done.code == Exit.USAGE
    assert "column 6" in done.err
    assert vcc("cache", "ls", "--filter", "sise>1", "--json").json["error"]["id"] == "FILTER"


def test_rm_takes_ids_by_their_beginning(vcc, two, own_store):
    first, second = two
    assert vcc("cache", "rm", first.artifact[:6], "--dry-run").code == 0
    assert ref_path(own_store, first).exists()
    done = vcc("cache", "rm", first.artifact[:6], "--json")
    assert [one["artifact"] for one in done.json["removed"]] == [first.artifact]
    assert not ref_path(own_store, first).exists()
    assert ref_path(own_store, second).exists()


def test_rm_of_what_is_not_there_is_a_miss_with_advice(vcc, two):
    done = vcc("cache", "rm", "0" * 12)
    assert done.code == Exit.NEGATIVE
    assert "vcc cache ls" in done.err
    short = vcc("cache", "rm", two[0].artifact[:4])
    assert short.code == Exit.NEGATIVE
    assert "6 digits" in short.err
    assert vcc("cache", "rm").code == Exit.USAGE


def test_several_ids_that_begin_so_are_listed_and_none_goes(vcc, two, own_store, monkeypatch):
    from vcc.cache.care import filters

    monkeypatch.setattr(filters, "MIN_PREFIX", 1)
    store = quiet(own_store)
    entries = [store.publish(manifest_of("full", 100 + n), {"program": b"x"}) for n in range(17)]
    firsts = [entry.artifact[0] for entry in entries]  # 17 ids, 16 digits: two begin alike
    digit = next(one for one in firsts if firsts.count(one) > 1)
    done = vcc("cache", "rm", digit)
    assert done.code == Exit.USAGE
    assert "begin so" in done.err
    assert all(e.artifact[:16] in done.err for e in entries if e.artifact[0] == digit)
    assert all(ref_path(own_store, entry).exists() for entry in entries)


def test_rm_of_a_model_removes_all_of_it(vcc, engine):
    for mode in ("full", "none"):
        vcc("compile", "demo", "--mode", mode)
    roots.release()
    assert len(vcc("cache", "ls", "--json").json["artifacts"]) == 2
    done = vcc("cache", "rm", "demo", "--json")
    assert (done.code, len(done.json["removed"])) == (0, 2)
    assert vcc("cache", "ls", "--json").json["artifacts"] == []


def test_pins_keep_and_unpin_lets_go(vcc, two):
    first, second = two
    assert vcc("cache", "pin", first.artifact[:8]).code == 0
    assert "was pinned before" in vcc("cache", "pin", first.artifact).out
    done = vcc("cache", "rm", first.artifact, second.artifact)
    assert done.code == Exit.PARTIAL
    assert "vcc cache unpin" in done.err
    assert vcc("cache", "rm", first.artifact).code == Exit.NEGATIVE
    assert vcc("cache", "ls", "--filter", "pinned=yes", "--json").json["artifacts"][0]["pinned"]
    assert vcc("cache", "unpin", first.artifact, "--json").json["unpinned"][0]["changed"]
    assert vcc("cache", "rm", first.artifact).code == 0


def test_prune_evicts_the_cheapest_and_needs_a_bound(vcc, two, monkeypatch):
    first, _ = two
    done = vcc("cache", "prune")
    assert done.code == Exit.USAGE
    assert "--max-size" in done.err
    size = vcc("cache", "stats", "--json").json["size"]
    told = vcc("cache", "prune", "--max-size", f"{size - 1}", "--dry-run", "--json").json
    done = vcc("cache", "prune", "--max-size", f"{size - 1}", "--json").json
    assert told["removed"] == done["removed"]
    (gone,) = done["removed"]
    assert gone["artifact"] == first.artifact
    assert "larger than" in gone["why"]
    assert vcc("cache", "prune", "--unused-for", "30").code == Exit.USAGE
    assert vcc("cache", "prune", "--max-size", "lots").code == Exit.USAGE
    assert "nothing to remove" in vcc("cache", "prune", "--unused-for", "30d").out
    monkeypatch.setenv("VCC_MAX_SIZE", "1B")
    assert len(vcc("cache", "prune", "--json").json["removed"]) == 1


def test_keep_last_keeps_the_newest_of_each_model(vcc, two, own_store):
    newer = quiet(own_store).publish(manifest_of("none", 5), BLOBS)
    done = vcc("cache", "prune", "--keep-last", "1", "--json").json
    assert [one["artifact"] for one in done["removed"]] == [two[0].artifact]
    assert ref_path(own_store, newer).exists()


def test_gc_says_what_went(vcc, two, own_store):
    os.unlink(ref_path(own_store, two[0]))
    assert "nothing to collect" in vcc("cache", "gc").out
    told = vcc("cache", "gc", "--grace", "0s", "--dry-run", "--json").json
    done = vcc("cache", "gc", "--grace", "0s", "--json").json
    assert told["places"] == done["places"]
    assert done["kinds"]["unreferenced blobs"]["count"] == 2
    assert vcc("cache", "gc", "--grace", "soon").code == Exit.USAGE
    assert vcc("cache", "gc", "--grace", "30m", "--dry-run").code == 0
    assert "30m (minutes)" in vcc("cache", "prune", "--unused-for", "30x").err


def test_verify_prints_exactly_the_damage_and_repair_ends_it(vcc, two, own_store):
    assert vcc("cache", "verify").code == 0
    path = blob_path(own_store, Digest.of(BLOBS["program"]))
    overwrite(path, flipped(path.read_bytes(), 0, 1))
    done = vcc("cache", "verify")
    assert done.code == Exit.INTEGRITY
    row, summary = done.out.splitlines()
    assert path.name[:12] in row
    assert two[0].artifact[:12] in row
    assert summary.startswith("1 damaged")
    assert "vcc cache repair" in done.err
    found = vcc("cache", "verify", "--json")
    assert found.code == Exit.INTEGRITY
    assert [one["artifacts"] for one in found.json["damage"]] == [[two[0].artifact]]
    done = vcc("cache", "verify", "--repair")
    assert done.code == 0
    assert "2 files set aside" in done.out
    assert vcc("cache", "verify").code == 0
    assert vcc("cache", "repair", "--json").json["aside"] == []


def test_unlock_shows_holders_and_leaves_live_ones(vcc, own_store):
    with single_flight(own_store, Digest.of(b"x"), "compiling demo"):
        done = vcc("cache", "unlock")
        assert done.code == Exit.NEGATIVE
        assert "compiling demo" in done.out
        (kept,) = vcc("cache", "unlock", "--json").json["kept"]
        assert kept["holder"]["pid"] == os.getpid()
        assert vcc("cache", "unlock", "--force", "--dry-run").code == 0
    assert vcc("cache", "unlock").out == "no locks\n"


def test_a_bound_of_nothing_removes_nothing_and_says_what_would(vcc, two):
    done = vcc("cache", "prune", "--max-size", "0")
    assert done.code == Exit.USAGE
    assert "--max-size=0 is no bound" in done.err
    assert vcc("cache", "rm", "--filter", "size>0B", "--dry-run").code == 0


def test_stats_count_boots_and_misses(vcc, engine):
    vcc("run", "demo", "--prompt", "a", "--max-new-tokens", "2")  # a miss, built here
    vcc("run", "demo", "--prompt", "a", "--max-new-tokens", "2")
    done = vcc("cache", "stats", "--json").json
    assert (done["artifacts"], done["hits"]) == (1, 1)
    assert done["models"][0]["hits"] == 1
    assert vcc("cache", "stats").out.splitlines()[0].split()[:3] == ["artifacts", "size", "hits"]


def test_a_store_that_is_not_safe_is_refused_by_every_command(vcc, two, own_store):
    own_store.chmod(0o777)
    for word in ("ls", "du", "stats", "gc", "verify", "repair", "unlock"):
        assert (word, vcc("cache", word).code) == (word, Exit.INTEGRITY)
