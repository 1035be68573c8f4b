"""The keyring: each key and each name once, from both trust folders."""

from __future__ import annotations

import pytest

from vcc.cache.canonical import FormatError
from vcc.cache.errors import UsageError
from vcc.cache.trust.keyring import (
    KEYS,
    MAX_KEYS,
    Keyring,
    TrustedKey,
    add_key,
    file_of,
    remove_key,
)
from vcc.cache.trust.place import TrustPlace


def key_of(number: int, name: str = "", **more) -> TrustedKey:
    return TrustedKey(key=f"{number + 16:064x}", name=name or f"key{number}", **more)


def system_of(place) -> TrustPlace:
    return TrustPlace(place.system, place.system, True)


def test_an_empty_place_trusts_nobody(place):
    assert Keyring.read(place).keys == ()


def test_added_keys_are_read_and_replaced(place):
    add_key(place, key_of(1, "ci"))
    path = add_key(place, key_of(1, "ci", builders=("ci-main",)))
    ring = Keyring.read(place)
    assert ring.keys == (key_of(1, "ci", builders=("ci-main",)),)
    assert ring.paths == {ring.keys[0].key: path}


def test_a_name_is_taken_once(place):
    add_key(place, key_of(1, "ci"))
    with pytest.raises(UsageError, match="another key is named ci"):
        add_key(place, key_of(2, "ci"))


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 65, "ab" * 32, ".x", "a\n"])
def test_a_name_that_could_be_mistaken_is_refused(place, name):
    with pytest.raises(UsageError, match="not a name"):
        add_key(place, TrustedKey(key=f"{99:064x}", name=name))


def test_a_key_is_found_by_name_or_by_its_beginning(place):
    one, two = TrustedKey(key="ab" * 32, name="one"), TrustedKey(key="ab" * 31 + "cd", name="two")
    add_key(place, one)
    add_key(place, two)
    ring = Keyring.read(place)
    assert ring.named("one") == one
    assert ring.named(two.key) == two
    for name in ("abababab", "three", "ab"):
        with pytest.raises(UsageError, match="not one trusted key"):
            ring.named(name)


def test_the_administrators_keys_count_and_the_users_entry_comes_first(place):
    add_key(system_of(place), key_of(1, "site"))
    add_key(system_of(place), key_of(2, "both"))
    add_key(place, key_of(2, "mine"))
    names = [one.name for one in Keyring.read(place).keys]
    assert names == ["mine", "site"]


def test_a_key_of_ours_can_be_removed_and_one_of_the_administrator_not(place):
    add_key(place, key_of(1, "mine"))
    add_key(system_of(place), key_of(2, "site"))
    ring = Keyring.read(place)
    remove_key(place, ring.named("mine"), ring.paths[ring.named("mine").key])
    with pytest.raises(UsageError, match="not yours to remove") as caught:
        remove_key(place, ring.named("site"), ring.paths[ring.named("site").key])
    assert "vcc trust revoke site" in caught.value.hint
    assert [one.name for one in Keyring.read(place).keys] == ["site"]


@pytest.mark.parametrize(
    "key", ["ab", "01" + "00" * 31, "AB" * 32, "zz" * 32], ids=["short", "small", "case", "hex"]
)
def test_a_file_that_holds_no_key_to_trust_stops_everything(place, key):
    place.write(file_of("a"), TrustedKey(key=key, name="a"))
    with pytest.raises(FormatError, match="cannot be used"):
        Keyring.read(place)


def test_more_keys_than_can_be_tried_are_refused(place):
    for number in range(MAX_KEYS + 1):
        place.write(f"{KEYS}/{number}.json", key_of(number))
    with pytest.raises(FormatError, match="too many"):
        Keyring.read(place)


def test_files_of_other_kinds_are_left_alone(place):
    add_key(place, key_of(1))
    (place.user / KEYS / "README").write_text("keys of the build farm")
    assert len(Keyring.read(place).keys) == 1
