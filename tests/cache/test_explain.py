"""A miss names the nearest entry and what differs."""

from __future__ import annotations

from support.stores import BASE, BLOBS, manifest_of

from vcc.cache.digest import Digest
from vcc.cache.explain import Reason, explain_miss
from vcc.cache.key import Difference, Key
from vcc.cache.request import Entry


def entry(mode: str = "full", created: int = 1, model: str = "ab") -> Entry:
    fields = {"model.digest": model * 32, "model.dtype": "fp32", "mode": mode, "level": mode[:1]}
    manifest = manifest_of(
        request=Key.of(fields).entries, open_fields=("level", "mode"), created=created
    ).with_blobs(BLOBS)
    return Entry.of(manifest, Digest.of(manifest.encode()))


def test_an_empty_store():
    miss = explain_miss(BASE, {}, ())
    assert (miss.reason, miss.nearest, miss.differences) == (Reason.EMPTY, None, ())


def test_another_model():
    miss = explain_miss(BASE, {}, [entry(model="cd")])
    assert miss.reason is Reason.NO_MODEL
    assert miss.differences == (Difference("model.digest", "cd" * 32, "ab" * 32),)


def test_other_settings_name_the_nearest_entry_and_its_factors():
    near, far = entry("full"), entry("none")
    miss = explain_miss(BASE, {"mode": "piecewise", "level": "f"}, [far, near])
    assert miss.reason is Reason.FIELDS
    assert miss.nearest == near
    assert miss.differences == (Difference("mode", "full", "piecewise"),)
    assert str(miss).endswith("nearest mode: found 'full', wanted 'piecewise'")


def test_among_equally_near_entries_the_newest_is_named():
    new, old = entry(created=2), entry(created=1)
    assert explain_miss(BASE, {"mode": "x"}, [new, old]).nearest == new


def test_an_answer_that_the_host_refused():
    assert explain_miss(BASE, {"mode": "full"}, [entry()]).reason is Reason.HOST
