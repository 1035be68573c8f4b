"""What a run does with an artifact that the policy does not admit: builds, or fails closed."""

from __future__ import annotations

import pytest
from support.trusting import RULES

from vcc.cache.errors import Exit
from vcc.cache.trust.place import TrustPlace

RUN = ("run", "demo", "--prompt", "a", "--max-new-tokens", "2")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("VCC_TRUST_DIR", str(tmp_path / "trust"))
    for name in ("VCC_POLICY", "VCC_SIGNING_KEY"):
        monkeypatch.delenv(name, raising=False)
    return TrustPlace(tmp_path / "trust", tmp_path / "none", True)


@pytest.fixture
def signed(vcc, engine, place, tmp_path):
    """An artifact of the demo, signed as production asks for."""
    assert vcc("compile", "demo").code == 0
    key = str(tmp_path / "k")
    vcc("sign", "--new-key", key)
    vcc("trust", "add", f"{key}.pub", "--name", "ci", "--builder", "ci-main")
    words = ("--builder", "ci-main", "--epoch", "7", "--claim", "ref=refs/heads/main")
    done = vcc("sign", "--all", "--key", key, *words, "--source-commit", "0123456789" * 4)
    assert done.code == 0, done.err
    fields = {name: getattr(RULES, name) for name in RULES.__struct_fields__}
    place.write("prod.json", type(RULES)(**{**fields, "models": ("*",)}))


def test_without_a_signature_signed_says_so_and_builds(vcc, engine):
    vcc("compile", "demo")
    done = vcc(*RUN, "--policy", "signed")
    assert done.code == 0
    assert len(engine.builds) == 2
    assert "is not trusted under policy signed: it is not signed" in done.err


def test_without_a_signature_and_without_leave_to_build_signed_is_exit_7(vcc, engine):
    vcc("compile", "demo")
    done = vcc(*RUN, "--policy", "signed", "--require-warm")
    assert done.code == Exit.INTEGRITY
    assert "--key FILE signs it" in done.err
    assert len(engine.builds) == 1


def test_a_refused_artifact_is_told_once(vcc, engine):
    vcc("compile", "demo")
    done = vcc(*RUN, "--policy", "signed")
    told = [line for line in done.err.splitlines() if "not trusted" in line]
    assert len(told) == 1
    assert "note: no artifact to boot from, so it is built now\n" in done.err


@pytest.fixture
def untrusted(vcc, engine, tmp_path):
    """A remote that nobody trusts and that has the demo, which is not stored here."""
    url = f"file://{tmp_path}/remote"
    there = ("--cache-dir", str(tmp_path / "there"))
    assert vcc("compile", "demo", *there).code == 0
    assert vcc("push", "--all", "--to", url, *there).code == 0
    engine.builds.clear()
    return url


def test_where_the_remote_has_untrusted_artifacts_only_the_error_says_so(vcc, engine, untrusted):
    done = vcc(*RUN, "--remote", untrusted, "--require-warm")
    assert (done.code, engine.builds) == (Exit.INTEGRITY, [])
    last = done.err[done.err.index("error: ") :]
    assert "is not trusted under policy own" in last
    assert f"why: it was pulled from {untrusted}, which is not a trusted remote" in last
    assert "vcc trust add --remote URL" in last
    assert "the store is empty" not in done.err


def test_a_build_beside_an_untrusted_remote_says_once_why(vcc, engine, untrusted):
    done = vcc(*RUN, "--remote", untrusted)
    assert (done.code, len(engine.builds)) == (0, 1)
    assert done.err.count("is not trusted") == 1
    assert "the store is empty" not in done.err


def test_where_the_remote_fails_the_error_says_that_too(vcc, engine, tmp_path):
    (tmp_path / "remote").write_text("a file")
    done = vcc(*RUN, "--remote", f"file://{tmp_path}/remote", "--require-warm")
    assert done.code == Exit.NEGATIVE
    assert "why: the store is empty; the remote has no answer: " in done.err


def test_prod_never_builds(vcc, engine):
    missing = vcc(*RUN, "--policy", "prod")
    assert missing.code == Exit.NEGATIVE
    vcc("compile", "demo")
    refused = vcc(*RUN, "--policy", "prod", "--json")
    assert refused.code == Exit.INTEGRITY
    assert refused.json["error"]["id"] == "UNTRUSTED"
    assert (len(engine.builds), engine.boots) == (1, [])


@pytest.mark.parametrize("policy", ["own", "signed", "prod"])
def test_what_meets_the_policy_boots_warm(vcc, engine, signed, policy):
    done = vcc(*RUN, "--policy", policy, "--require-warm")
    assert done.code == 0, done.err
    assert (len(engine.builds), len(engine.boots)) == (1, 1)


def test_the_environment_sets_the_policy_of_a_service(vcc, engine, signed, monkeypatch):
    monkeypatch.setenv("VCC_POLICY", "prod")
    assert vcc(*RUN).code == 0
    vcc("trust", "revoke", "ci")
    done = vcc(*RUN)
    assert done.code == Exit.INTEGRITY
    assert "the key was revoked" in done.err
    assert len(engine.builds) == 1


def test_a_refused_artifact_is_not_quarantined(vcc, engine, own_store):
    vcc("compile", "demo")
    vcc(*RUN, "--policy", "prod")
    assert not (own_store / "v1/quarantine").exists()
    assert vcc(*RUN, "--require-warm").code == 0
