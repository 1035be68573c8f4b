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


def test_three_entries_are_named_nearest_first_and_their_causes_heaviest_first():
    have = [
        entry("none", model="cd", created=5),
        entry("piecewise", created=4),
        entry("full", created=3),
        entry("none", created=2),
    ]
    miss = explain_miss(BASE, {"mode": "full", "level": "x"}, have)
    assert [one.entry.fields["mode"] for one in miss.near] == ["full", "piecewise", "none"]
    assert [len(one.differences) for one in miss.near] == [1, 2, 2]
    other = explain_miss(BASE, {"mode": "full"}, have[:1]).near[0].differences
    assert [one.label for one in other] == ["model.digest", "mode"]


def test_another_form_of_this_model_is_nearer_than_another_model():
    other_dtype = Key.of({**dict(BASE), "model.dtype": "bf16"})
    miss = explain_miss(other_dtype, {"mode": "none"}, [entry(model="cd"), entry("full")])
    assert miss.reason is Reason.OTHER_FORM
    assert [one.label for one in miss.differences] == ["model.dtype", "mode"]


def test_a_label_that_only_the_entry_has_differs_when_it_is_no_open_field():
    more = entry()
    fields = {**more.fields, "parallel.pp": "2"}
    import msgspec

    more = msgspec.structs.replace(more, request=Key.of(fields).entries)
    (found,) = explain_miss(BASE, {}, [more]).differences
    assert (found.label, found.found, found.wanted) == ("parallel.pp", "2", None)


def test_artifacts_of_another_kind_are_not_near():
    guest = manifest_of(request=(("guest.name", "a"), ("host.cpu", "b")), open_fields=())
    other = Entry.of(guest, Digest.of(guest.encode()))
    miss = explain_miss(BASE, {}, [other])
    assert (miss.reason, miss.near) == (Reason.NO_MODEL, ())
    assert len(explain_miss(BASE, {}, [other, entry("full")]).near) == 1
