"""The guard: one host, and nothing else."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading

import pytest
from support.servers import serving

from vcc.cache.remote.guard import guarded


class Server(http.server.BaseHTTPRequestHandler):
    """Says what it was asked."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{self.path} {self.headers['Host']}".encode())

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    with serving(web):
        yield f"127.0.0.1:{web.server_port}"


def ask(guard, text):
    """The answer to raw bytes."""
    host, _, port = guard.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=5) as client:
        client.sendall(text)
        client.shutdown(socket.SHUT_WR) if text.endswith(b"!") else None
        parts = []
        while part := client.recv(4096):
            parts.append(part)
        return b"".join(parts)


def request(place, path="/a?b=1", method="GET"):
    return f"{method} http://{place}{path} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode()


def test_the_endpoint_is_reached(server):
    with guarded(f"http://{server}", 2) as guard:
        assert ask(guard, request(server)).endswith(f"/a?b=1 {server}".encode())
        assert guard.refused == []


@pytest.mark.parametrize(
    "place", ["169.254.169.254", "127.0.0.1:1", "localhost:80", "evil.example.com"]
)
def test_another_place_is_refused_and_named(server, place):
    with guarded(f"http://{server}", 2) as guard:
        assert ask(guard, request(place)).startswith(b"HTTP/1.1 403")
        assert ask(guard, f"CONNECT {place}:443 HTTP/1.1\r\n\r\n".encode())[:12] in (
            b"HTTP/1.1 403",
            b"",
        )
    assert guard.refused[0].startswith(place.partition(":")[0])


@pytest.mark.parametrize(
    "text",
    [b"!", b"GET\r\n\r\n", b"POST http://x/ HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02!", b"A" * 40000,
     b"GET http://[::1/ HTTP/1.1\r\n\r\n", b"GET /x HTTP/1.1\r\n\r\n"],
)  # fmt: skip
def test_what_is_no_request_of_a_listing_gets_nothing(server, text):
    with guarded(f"http://{server}", 1) as guard, contextlib.suppress(ConnectionResetError):
        assert ask(guard, text) == b""


def test_encrypted_bytes_pass_as_they_are():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def echo():
            one, _ = server.accept()
            with one:
                one.sendall(one.recv(100)[::-1])

        threading.Thread(target=echo, daemon=True).start()
        with guarded(f"https://127.0.0.1:{port}", 2) as guard:
            host, _, at = guard.url.removeprefix("http://").partition(":")
            with socket.create_connection((host, int(at)), timeout=5) as client:
                client.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
                assert client.recv(100).startswith(b"HTTP/1.1 200")
                client.sendall(b"abc")
                assert client.recv(100) == b"cba"


def test_the_guard_is_gone_afterwards(server):
    with guarded(f"http://{server}", 2) as guard:
        pass
    with pytest.raises(OSError, match="refused"):
        ask(guard, request(server))


def test_the_proxy_of_the_environment_is_passed_through(server, monkeypatch):
    """A site's own proxy stands between the guard and the endpoint, with its password."""
    seen = []
    with socket.create_server(("127.0.0.1", 0)) as proxy:

        def answer():
            one, _ = proxy.accept()
            with one:
                seen.append(one.recv(4096))
                one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")

        threading.Thread(target=answer, daemon=True).start()
        monkeypatch.setenv("http_proxy", f"http://me:pw@127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.setenv("no_proxy", "")
        with guarded("http://storage.example", 2) as guard:
            assert ask(guard, request("storage.example")).endswith(b"hi")
    assert seen[0].startswith(b"GET http://storage.example/a?b=1 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic bWU6cHc=\r\n" in seen[0]
