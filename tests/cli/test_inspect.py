"""vcc inspect shows the store, an artifact and what a key is made of."""

from __future__ import annotations


def test_an_empty_store_is_said(vcc, own_store):
    done = vcc("inspect", "cache")
    assert done.out == f"no artifacts in {own_store}\n"
    assert vcc("inspect", "cache", "--json").json == {
        "root": str(own_store),
        "artifacts": [],
        "size": 0,
    }


def test_cache_lists_what_is_stored(vcc, engine):
    vcc("compile", "demo", "--mode", "full")
    head, row = vcc("inspect", "cache").out.splitlines()
    columns = ["artifact", "age", "size", "target", "dtype", "compile", "graphs", "model"]
    assert head.split() == columns
    assert row.count("bf16") == 1
    assert "cpu:x86-64-v3" in row
    assert "full" in row
    assert row.endswith("demo for tests")
    (found,) = vcc("inspect", "cache", "--json").json["artifacts"]
    assert found["request"]["config.cuda_graph_mode"] == "full"


def test_an_artifact_is_named_by_id_beginning_or_model(vcc, engine):
    vcc("compile", "demo")
    (entry,) = vcc("inspect", "cache", "--json").json["artifacts"]
    shown = {
        vcc("inspect", "artifact", name).out
        for name in (entry["artifact"], entry["artifact"][:8], "demo")
    }
    assert len(shown) == 1
    text = shown.pop()
    for part in (
        "request",
        "code key",
        "host rules",
        "piece/0.so",
        "model.digest",
        "config.mode (open)",
        "admitted, as it was written by",
    ):
        assert part in text
    found = vcc("inspect", "artifact", "demo", "--json").json
    assert found["artifact"] == entry["artifact"]
    assert found["blobs"]["piece/0.so"]["kind"] == "library"
    assert found["tier"] == "local"
    assert found["trust"].startswith("written by")


def test_key_shows_base_stated_and_open(vcc, engine):
    done = vcc("inspect", "key", "demo", "--mode", "full")
    assert "model.architecture" in done.out
    assert "miss: the store is empty" in done.out
    found = vcc("inspect", "key", "demo", "--mode", "full", "--json").json
    assert found["stated"] == {"config.cuda_graph_mode": "full"}
    assert "config.mode" in found["open"]
    assert found["base"]["model.dtype"] == "bf16"
    assert found["hit"] is None
    vcc("compile", "demo", "--mode", "full")
    assert "hit: artifact" in vcc("inspect", "key", "demo", "--mode", "full").out


def test_an_ambiguous_beginning_lists_the_candidates(vcc, engine, monkeypatch):
    import pytest

    from vcc.cache.errors import UsageError
    from vcc.cli.stored import find_entry

    class Two:
        root = "x"

        def entries(self):
            return iter([Named("abcd" + "0" * 60), Named("abcd" + "1" * 60)])

    class Named:
        def __init__(self, artifact):
            self.artifact = artifact

    with pytest.raises(UsageError, match="abcd is not one artifact"):
        find_entry(Two(), "abcd")
    assert find_entry(Two(), "ABCD1").artifact.endswith("1")


def test_key_of_a_model_has_the_three_keys_as_text(vcc, engine):
    from vcc.cache.key import Key

    found = vcc("inspect", "key", "demo", "--json").json["keys"]
    assert found.keys() == {"request", "code key", "plan key"}
    for key in found.values():
        parsed = Key.parse(key["text"])
        assert dict(parsed) == key["entries"]
        assert parsed.digest.hex == key["digest"]
    assert "version.torch" in found["code key"]["entries"]
    text = vcc("inspect", "key", "demo").out
    assert f"code key {found['code key']['digest']}" in text
    for group in ("  version\n", "  configuration\n", "  sizes\n"):
        assert group in text
    assert "a build adds the digests of the constants" in text


def test_key_of_an_artifact_is_that_of_its_manifest(vcc, own_store):
    from support.key_artifacts import asked, publish

    from vcc.cache.store import Store

    store = Store.open(own_store)
    entry = publish(store, asked())
    manifest = store.load(entry).manifest
    found = vcc("inspect", "key", entry.artifact[:6], "--json").json
    assert found["artifact"] == entry.artifact
    assert found["keys"]["code key"]["entries"] == dict(manifest.code_key)
    assert found["keys"]["plan key"]["entries"] == dict(manifest.plan_key)
    assert found["host_rules"] == manifest.host_rules
    text = vcc("inspect", "key", entry.artifact).out
    assert "constant.inv_freq" in text
    assert "host rules" in text
