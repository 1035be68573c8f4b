"""vcc diff names two artifacts by their ids, or two models."""

from __future__ import annotations

import pytest


@pytest.fixture
def ids(vcc, engine):
    """Two artifacts of the demo: full, and none with fewer sequences."""
    made = []
    for options in (("--mode", "full"), ("--mode", "none", "--max-num-seqs", "4")):
        made.append(vcc("compile", "demo", *options, "--json").json["artifact"])
    return made


def test_two_artifacts_differ_in_what_they_were_built_for(vcc, ids):
    done = vcc("diff", ids[0][:6], ids[1])
    assert done.code == 0, done.err
    assert done.out.startswith(f"a: {ids[0][:12]}, demo for tests\nb: {ids[1][:12]}")
    assert "config.cuda_graph_mode" in done.out
    assert "same" in done.out
    found = vcc("diff", *ids, "--json").json
    assert found["a"]["name"] == ids[0]
    request = {one["label"]: (one["a"], one["b"]) for one in found["sections"]["request"]}
    assert request["config.cuda_graph_mode"] == ("full", "none")
    assert request["model.max_num_seqs"] == ("128", "4")
    assert found["blobs"]["same"] == ["piece/0.so", "program"]
    assert found["equal"] is False


def test_an_artifact_does_not_differ_from_itself(vcc, ids):
    assert "nothing differs" in vcc("diff", ids[0], ids[0]).out
    assert vcc("diff", ids[0], ids[0], "--json").json["equal"] is True


def test_an_artifact_is_compared_with_what_a_model_would_ask_for_now(vcc, ids):
    found = vcc("diff", ids[0], "demo", "--mode", "full", "--json").json
    assert found["sections"]["request"] == []
    assert {one["label"] for one in found["sections"]["code key"]} >= {"torch", "version.torch"}
    assert found["blobs"] is None


def test_two_models_are_compared_without_a_store(vcc, own_store):
    found = vcc("diff", "demo", "demo", "--dtype", "fp32", "--json").json
    assert found["equal"] is True
    assert not own_store.exists()


def test_an_ambiguous_beginning_lists_the_candidates(vcc, monkeypatch):
    from vcc.cache.errors import UsageError
    from vcc.cli.stored import find_by_id

    class Named:
        def __init__(self, artifact):
            self.artifact = artifact

    class Two:
        root = "x"

        def entries(self):
            return iter([Named("abcdef" + "0" * 58), Named("abcdef" + "1" * 58)])

    with pytest.raises(UsageError, match="abcdef is not one artifact") as error:
        find_by_id(Two(), "abcdef")
    assert "abcdef0000000000" in error.value.why
    assert find_by_id(Two(), "ABCDEF1").artifact.endswith("1")
    assert find_by_id(Two(), "abcde") is None, "five digits may be the name of a model"
    assert find_by_id(Two(), "demo") is None


def test_a_whole_id_that_nothing_has_is_no_model(vcc, ids):
    done = vcc("diff", "ab" * 32, ids[0])
    assert done.code == 1
    assert "no artifact abab" in done.err


def test_a_name_that_is_neither_says_what_models_there_are(vcc, ids):
    done = vcc("diff", ids[0], "./no/such/thing")
    assert done.code == 2
    assert "no model at ./no/such/thing" in done.err
