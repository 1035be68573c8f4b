"""Public keys: only ed25519, and none under which anybody can sign."""

from __future__ import annotations

import builtins

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa, x25519

from vcc.cache.errors import Exit, UsageError
from vcc.cache.trust import publickey
from vcc.cache.trust.publickey import MissingExtra, check_key, is_key, read_public_key

P = 2**255 - 19
D = -121665 * pow(121666, P - 2, P) % P


def decoded(y: int, sign: int) -> tuple[int, int] | None:
    """The point of a y coordinate and the sign of x (RFC 8032), if there is one."""
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    if x * x % P != square:
        return None
    return (P - x if x % 2 != sign else x) % P, y % P


def added(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    product = D * a[0] * b[0] * a[1] * b[1] % P
    x = (a[0] * b[1] + b[0] * a[1]) * pow(1 + product, P - 2, P) % P
    return x, (a[1] * b[1] + a[0] * b[0]) * pow(1 - product, P - 2, P) % P


def small(text: str) -> bool:
    """Whether eight times the point is the neutral one."""
    number = int.from_bytes(bytes.fromhex(text), "little")
    point = decoded(number % 2**255, number >> 255)
    for _ in range(3):
        point = None if point is None else added(point, point)
    return point == (0, 1)


def test_each_refused_point_is_of_small_order_and_all_of_them_are_refused():
    assert all(small(text) for text in publickey._SMALL_ORDER)
    ys = {int.from_bytes(bytes.fromhex(text), "little") % P for text in publickey._SMALL_ORDER}
    # Eight points: y is 1, -1, 0 (two signs of x) and the two coordinates of order 8 (two each).
    assert len(ys) == 5
    every = [y for y in (*ys, *(y + P for y in ys)) if y < 2**255]
    for y in every:
        for sign in (0, 1):
            assert not is_key((y | sign << 255).to_bytes(32, "little").hex())


def test_the_library_itself_takes_a_signature_that_anybody_can_make(key):
    """Why small order is refused: under the neutral point R = (0, 1), s = 0 holds for any bytes."""
    neutral = bytes([1]) + bytes(31)
    ed25519.Ed25519PublicKey.from_public_bytes(neutral).verify(neutral + bytes(32), b"anything")
    assert not is_key(neutral.hex())
    assert is_key(key.public)


@pytest.mark.parametrize("text", ["", "ab", "g" * 64, "AB" * 32, "ab" * 33, "ab" * 32 + "\n"])
def test_what_is_no_key_is_refused(text):
    with pytest.raises(UsageError, match="not a public key"):
        check_key(text)


def test_a_key_of_small_order_is_refused_by_name():
    with pytest.raises(UsageError, match="small order"):
        read_public_key("01" + "00" * 31)


def test_hex_a_file_of_hex_and_pem_are_read(key, tmp_path):
    assert read_public_key(key.public.upper()) == key.public
    for name, data in (("hex", key.public.encode() + b"\n"), ("pem", key.public_pem())):
        (tmp_path / name).write_bytes(data)
        assert read_public_key(str(tmp_path / name)) == key.public


@pytest.mark.parametrize(
    "made", [rsa.generate_private_key, ec.generate_private_key, x25519, ed448], ids=str
)
def test_keys_of_other_algorithms_are_refused(made, tmp_path):
    keys = {
        rsa.generate_private_key: lambda: rsa.generate_private_key(65537, 2048),
        ec.generate_private_key: lambda: ec.generate_private_key(ec.SECP256R1()),
        x25519: x25519.X25519PrivateKey.generate,
        ed448: ed448.Ed448PrivateKey.generate,
    }
    public = keys[made]().public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    (tmp_path / "k").write_bytes(public.public_bytes(serialization.Encoding.PEM, form))
    with pytest.raises(UsageError, match="another kind"):
        read_public_key(str(tmp_path / "k"))


def test_a_private_key_is_refused_without_a_byte_of_it_in_the_message(key, tmp_path):
    (tmp_path / "k").write_bytes(key.pem())
    with pytest.raises(UsageError, match="private key") as caught:
        read_public_key(str(tmp_path / "k"))
    secret = key.pem().splitlines()[1].decode()
    assert secret not in str(caught.value.as_dict())
    assert ".pub" in caught.value.hint


@pytest.mark.parametrize("data", [b"\xff\xfe", b"-----BEGIN PUBLIC KEY-----\nAAAA\n", b"x" * 99999])
def test_files_that_hold_no_key_are_refused(data, tmp_path):
    (tmp_path / "k").write_bytes(data)
    with pytest.raises(UsageError, match="not a public key"):
        read_public_key(str(tmp_path / "k"))


def test_a_missing_file_says_what_to_give():
    with pytest.raises(UsageError, match="neither a public key nor a file") as caught:
        read_public_key("/no/such/key")
    assert "64 hex digits" in caught.value.hint


def test_without_cryptography_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("cryptography"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr("importlib.import_module", without)
    with pytest.raises(MissingExtra) as caught:
        publickey.crypto("serialization")
    assert (caught.value.exit, caught.value.id) == (Exit.DEVICE, "MISSING_EXTRA")
    assert caught.value.hint == "pip install 'cryptography>=43'"
