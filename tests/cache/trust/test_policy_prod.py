"""Policy prod: what meets every rule, and nothing else; the CREEP drill (row 138)."""

from __future__ import annotations

import pytest
from support.stores import BLOBS, manifest_of
from support.trusting import MAIN, Site, Terms, refused, site_at

from vcc.cache.gate import Untrusted
from vcc.cache.store import Store


def test_prod_admits_what_meets_every_rule(site, key):
    site.trust(key, "main", "ci-main")
    site.sign(key)
    site.rule()
    assert site.why("prod") == "signed by main for ci-main, epoch 7"


def test_prod_without_rules_admits_nothing(site, key):
    site.trust(key, "main", "ci-main")
    site.sign(key)
    assert "no rules" in refused(site, "prod").why


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        (Terms(builder="ci-next"), "builder 'ci-next' is none of ci-main"),
        (Terms(builder="ci-main"), "source commit unknown"),
        (Terms("ci-main", MAIN.source_commit, MAIN.claims, 4), "epoch 4 is before 5"),
        (Terms("ci-main", MAIN.source_commit, {}, 7), "claim ref"),
    ],
)
def test_prod_names_the_rule_that_is_broken(site, key, terms, why):
    site.trust(key, "main", "ci-main", "ci-next")
    site.rule()
    site.sign(key, terms)
    assert f"signed by main, but {why}" in refused(site, "prod").why


def test_prod_refuses_another_model_revision(site, key):
    site.trust(key, "main", "ci-main")
    site.sign(key)
    site.rule(models=("cd" * 32,))
    assert "model abababababab is not one that is allowed" in refused(site, "prod").why


def test_prod_refuses_a_rollback(site, key):
    """An old artifact, rightly signed then, after the minimum epoch was raised."""
    site.trust(key, "main", "ci-main")
    site.sign(key)
    site.rule()
    assert site.why("prod")
    site.rule(minimum_epoch=8)
    assert "epoch 7 is before 8" in refused(site, "prod").why


def test_prod_takes_one_signature_that_meets_the_rules_among_others(site, key, other):
    site.trust(key, "main", "ci-main")
    site.trust(other, "pr", "ci-pr")
    site.sign(other, Terms(builder="ci-pr"))
    site.rule()
    assert "signed by pr, but builder 'ci-pr'" in refused(site, "prod").why
    site.sign(key)
    assert site.why("prod").startswith("signed by main")


# --- CREEP: poisoning of a cache that pull requests can write (row 138) ------------------------


@pytest.mark.parametrize("says", ["nothing", "who it is", "that it is main", "main's own words"])
def test_an_artifact_of_a_pull_request_under_mains_request_does_not_load(
    tmp_path, key, other, says
):
    """A job of a pull request publishes under the request that main's jobs look up."""
    site = site_at(tmp_path)
    site.trust(key, "main", "ci-main")
    site.trust(other, "pr", "ci-pr")  # trusted, for its own namespace
    site.rule()
    site.sign(key)
    evil = Store.open(site.root).publish(
        manifest_of(created=1_800_000_000, title="evil"), {**BLOBS, "piece/0.so": b"\x7fELFevil"}
    )
    forged = Site(site.root, site.place, evil)
    if says == "who it is":
        forged.sign(other, Terms("ci-pr", MAIN.source_commit, {"ref": "refs/pull/1/merge"}, 9))
    if says == "that it is main":
        forged.sign(other, MAIN)
    if says == "main's own words":
        kept = site.root / "v1/signatures" / site.entry.artifact / key.public
        forged.put(key.public, kept.read_bytes())
    store = site.store("prod")
    first, second = store.find(site.entry.base, {"mode": "full"})
    assert (first, second) == (evil, site.entry)
    with pytest.raises(Untrusted):
        store.load(first)
    assert store.load(second).read_all() == dict(BLOBS)
