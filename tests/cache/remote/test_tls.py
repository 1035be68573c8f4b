"""Encrypted connections: who the server is must be proven, and the user can name an authority."""

from __future__ import annotations

import http.server
import ssl
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from support.remotes import QUICK, at
from support.servers import serving

from vcc.cache.errors import RemoteError
from vcc.cache.remote.offers import offers
from vcc.cache.remote.patience import Patience

DAY = timedelta(days=1)
EMPTY = {"s3": b"<ListBucketResult></ListBucketResult>", "oci": b'{"tags":[]}'}


class Server(http.server.BaseHTTPRequestHandler):
    """An empty listing of either kind."""

    def do_GET(self):
        body = EMPTY["oci" if "/v2/" in self.path else "s3"]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Page(Server):
    """A page for whatever is asked."""

    def do_GET(self):
        body = b"<html>log in</html>"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET


def authority():
    """A key, and the name of the authority that has it."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "vcc test authority")])
    return ec.generate_private_key(ec.SECP256R1()), name


def signed(key, name, by, issuer, extensions, begins=-DAY, ends=DAY):
    """A certificate as PEM."""
    now = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
    )
    for extension, critical in extensions:
        made = made.add_extension(extension, critical=critical)
    return made.sign(by, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def certificate(folder, *, address="127.0.0.1", begins=-DAY, ends=DAY):
    """Files of the authority, of a server's certificate by it, and of the server's key."""
    by, issuer = authority()
    is_authority = (x509.BasicConstraints(ca=True, path_length=None), True)
    (folder / "ca.pem").write_bytes(signed(by, issuer, by, issuer, [is_authority]))
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "vcc test server")])
    place = (x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), False)
    known = (x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key()), False)
    text = signed(key, name, by, issuer, [place, known], begins, ends)
    (folder / "cert.pem").write_bytes(text)
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(secret)
    return folder / "ca.pem", folder / "cert.pem", folder / "key.pem"


@contextmanager
def server(folder, kind=Server, **named):
    """Host and port of an encrypted server, and the file of its authority."""
    ca, cert, key = certificate(folder, **named)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    web.socket = context.wrap_socket(web.socket, server_side=True)
    web.handle_error = lambda *args: None
    with serving(web):
        yield f"127.0.0.1:{web.server_port}", ca


def urls(host, ca=""):
    option = f"&ca={ca}" if ca else ""
    return f"oci://{host}/a/b?tls=on{option}", f"s3://b/x?endpoint=https://{host}{option}"


def listed(url):
    with at(url) as remote:
        return offers(remote, Patience(QUICK)).entries


@pytest.mark.usefixtures("s3")
@pytest.mark.parametrize("which", [0, 1], ids=["oci", "s3"])
class TestEncrypted:
    """Each kind of remote."""

    def test_an_authority_that_is_named_is_trusted(self, tmp_path, which):
        with server(tmp_path) as (host, ca):
            assert listed(urls(host, ca)[which]) == ()

    def test_a_page_in_place_of_a_listing_is_an_error(self, tmp_path, which):
        with server(tmp_path, Page) as (host, ca), pytest.raises(RemoteError):
            listed(urls(host, ca)[which])

    def test_a_certificate_of_an_unknown_authority_is_refused(self, tmp_path, which):
        with server(tmp_path) as (host, _), pytest.raises(RemoteError):
            listed(urls(host)[which])

    def test_an_expired_certificate_is_refused(self, tmp_path, which):
        with (
            server(tmp_path, begins=-3 * DAY, ends=-DAY) as (host, ca),
            pytest.raises(RemoteError),
        ):
            listed(urls(host, ca)[which])

    def test_a_certificate_of_another_host_is_refused(self, tmp_path, which):
        with server(tmp_path, address="127.0.0.2") as (host, ca), pytest.raises(RemoteError):
            listed(urls(host, ca)[which])


def test_what_is_wrong_with_a_certificate_is_said(tmp_path):
    with server(tmp_path) as (host, _), pytest.raises(RemoteError) as caught:
        listed(urls(host)[0])
    assert "certificate is not accepted" in caught.value.what
    assert "ca=" in caught.value.hint


@pytest.mark.usefixtures("s3")
def test_a_file_of_certificates_that_is_not_there_is_said():
    from vcc.cache.errors import VccError

    for url in urls("127.0.0.1:1", "/no/such/file.pem"):
        with pytest.raises(VccError) as caught:
            listed(url)
        assert "/no/such/file.pem" in str(caught.value)
