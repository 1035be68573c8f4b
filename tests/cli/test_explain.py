"""vcc explain says why a look-up missed, the last one or one that might be made."""

from __future__ import annotations

import pytest


@pytest.fixture
def full(vcc, engine, own_store):
    """A store with the demo in full mode."""
    assert vcc("compile", "demo", "--mode", "full").code == 0
    return own_store


def test_a_hypothetical_look_up_that_misses_names_the_option_that_hits(vcc, full):
    done = vcc("explain", "demo", "--mode", "none")
    assert done.code == 0, done.err
    assert "miss: artifacts of this model were built with other settings" in done.out
    assert "--mode full" in done.out
    found = vcc("explain", "demo", "--mode", "none", "--json").json
    (near,) = found["nearest"]
    assert near["causes"] == [
        {
            "label": "config.cuda_graph_mode",
            "group": "configuration",
            "found": "full",
            "wanted": "none",
            "hint": "--mode full",
        }
    ]
    assert (found["hit"], found["model"], found["when"]) == (None, "demo", 0)


def test_the_hint_makes_it_hit(vcc, full):
    found = vcc("explain", "demo", "--mode", "none", "--json").json
    option = found["nearest"][0]["causes"][0]["hint"].split()
    assert vcc("explain", "demo", *option, "--json").json["hit"] is not None


def test_the_last_look_up_is_explained_without_a_model(vcc, full):
    assert vcc("run", "demo", "--mode", "none", "--prompt", "a", "--require-warm").code == 1
    done = vcc("explain")
    assert done.code == 0, done.err
    assert done.out.startswith("the look-up of demo that missed ")
    assert "config.cuda_graph_mode" in done.out
    assert vcc("explain", "--json").json["when"] > 0


def test_without_a_noted_look_up_a_model_is_asked_for(vcc, own_store):
    done = vcc("explain")
    assert done.code == 1
    assert "none that missed is noted" in done.err
    assert "vcc explain MODEL" in done.err
    assert not own_store.exists()


def test_a_miss_leaves_a_note_once_there_is_a_store(vcc, engine, own_store):
    assert vcc("run", "demo", "--require-warm", "--prompt", "x").code == 1
    assert "a look-up makes no store" in vcc("explain").err
    assert not own_store.exists()
    assert vcc("compile", "demo").code == 0
    assert "a look-up makes no store" not in vcc("explain").err
    assert vcc("run", "demo", "--require-warm", "--dtype", "fp32", "--prompt", "x").code == 1
    assert "the look-up of demo that missed" in vcc("explain").out


def test_an_empty_store_and_a_hit_are_said(vcc, engine):
    assert "miss: the store is empty" in vcc("explain", "demo").out
    vcc("compile", "demo")
    done = vcc("explain", "demo")
    assert done.out.startswith("hit: artifact ")
    assert "a build here would compile again" in done.out, "the fake engine's key is none of ours"
    assert "version.torch" in vcc("explain", "demo", "--json").out


def test_many_causes_are_cut_and_json_has_them_all(vcc, engine):
    vcc("compile", "demo")
    assert "more: --json shows all" in vcc("explain", "demo").out
    assert len(vcc("explain", "demo", "--json").json["rebuild"]) > 20


def test_an_unknown_model_is_an_error_with_its_hint(vcc):
    done = vcc("explain", "dmo")
    assert done.code == 2
    assert "demo" in done.err
