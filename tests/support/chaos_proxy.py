"""A proxy in front of a real server that spoils answers to order. It records what it was asked."""

from __future__ import annotations

import http.client
import http.server
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from support.servers import serving

PAGE = b"<html><title>Sign in</title><form>user, password</form></html>"


@dataclass(frozen=True)
class Asked:
    """One request: method, path with query, headers in lower case."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass(frozen=True)
class Answer:
    """What the server behind said."""

    status: int
    headers: dict[str, str]
    body: bytes


Spoil = Callable[["Handler", Answer], None]
"""Sends something instead of the answer."""


@dataclass
class Chaos:
    """A running proxy.

    Attributes:
        host: host and port.
        spoil: how answers are spoilt; None: not at all.
        only: which requests are; all by default.
        times: how many are; then the proxy is good again.
        forward: whether the server behind hears of requests whose answer is spoilt.
        asked: all requests so far.
    """

    host: str
    spoil: Spoil | None = None
    only: Callable[[Asked], bool] = lambda asked: True
    times: int = 1 << 30
    forward: bool = True
    asked: list[Asked] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Of the proxy."""
        return f"http://{self.host}"

    def next_spoil(self, asked: Asked) -> Spoil | None:
        """How this request's answer is spoilt; None: it is not."""
        if self.spoil is None or self.times <= 0 or not self.only(asked):
            return None
        self.times -= 1
        return self.spoil


class Handler(http.server.BaseHTTPRequestHandler):
    """Passes a request on and the answer back."""

    protocol_version = "HTTP/1.1"
    chaos: Chaos
    upstream: str

    def handle_any(self) -> None:
        """One request of any method."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = dict(self.headers.items())
        asked = Asked(self.command, self.path, {k.lower(): v for k, v in headers.items()})
        self.chaos.asked.append(asked)
        spoil = self.chaos.next_spoil(asked)
        heard = spoil is None or self.chaos.forward
        answer = self.forward(body, headers) if heard else Answer(200, {}, b"")
        with suppress(BrokenPipeError, ConnectionResetError):
            self.pass_on(answer) if spoil is None else spoil(self, answer)

    def forward(self, body: bytes, headers: dict[str, str]) -> Answer:
        """What the server behind says."""
        place = urlsplit(self.upstream)
        server = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)
        try:
            server.request(self.command, self.path, body, {**headers, "Connection": "close"})
            said = server.getresponse()
            return Answer(said.status, dict(said.getheaders()), said.read())
        finally:
            server.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = handle_any

    def pass_on(self, answer: Answer) -> None:
        """The answer as it is."""
        self.begin(answer)
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def begin(self, answer: Answer, length: int | None = -1, *, chunked: bool = False) -> None:
        """Status and headers.

        Args:
            length: another Content-Length; None for none at all, -1 for the true one.
            chunked: whether the body comes in chunks.
        """
        self.send_response(answer.status)
        skipped = {"content-length", "transfer-encoding", "connection", "server", "date"}
        for name, value in answer.headers.items():
            if name.lower() not in skipped:
                self.send_header(name, value)
        if length is not None:
            true = answer.headers.get("Content-Length", str(len(answer.body)))
            self.send_header("Content-Length", true if length < 0 else str(length))
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        if length is None:
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def cut_off(keep: int, *, length: bool = True) -> Spoil:
    """The first `keep` bytes; the length that is announced is the true one, or there is none."""

    def spoil(handler: Handler, answer: Answer) -> None:
        handler.close_connection = True
        handler.begin(answer, -1 if length else None)
        handler.wfile.write(answer.body[:keep])

    return spoil


def chunked_cut_off(keep: int) -> Spoil:
    """A chunked body that ends in the middle of a chunk."""

    def spoil(handler: Handler, answer: Answer) -> None:
        handler.close_connection = True
        handler.begin(answer, None, chunked=True)
        handler.wfile.write(b"%x\r\n" % len(answer.body) + answer.body[:keep])

    return spoil


def reset_at(keep: int) -> Spoil:
    """RST after `keep` bytes."""

    def spoil(handler: Handler, answer: Answer) -> None:
        handler.begin(answer)
        handler.wfile.write(answer.body[:keep])
        handler.wfile.flush()
        linger = struct.pack("ii", 1, 0)
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        handler.connection.close()
        handler.close_connection = True

    return spoil


def slow(pause_s: float, size: int) -> Spoil:
    """`size` bytes, a pause, and so on."""

    def spoil(handler: Handler, answer: Answer) -> None:
        handler.begin(answer)
        for start in range(0, len(answer.body), size):
            handler.wfile.write(answer.body[start : start + size])
            time.sleep(pause_s)

    return spoil


def status(code: int, body: bytes = b"", **headers: str) -> Spoil:
    """Another status, with another body."""

    def spoil(handler: Handler, answer: Answer) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        handler.pass_on(Answer(code, named, body))

    return spoil


def page() -> Spoil:
    """200 and the HTML page of a login."""
    return status(200, PAGE, Content_Type="text/html")


def other_bytes() -> Spoil:
    """As many bytes, but other ones."""

    def spoil(handler: Handler, answer: Answer) -> None:
        body = bytes(byte ^ 0x5A for byte in answer.body)
        handler.pass_on(Answer(answer.status, answer.headers, body))

    return spoil


def endless(limit: int = 1 << 26) -> Spoil:
    """A body without an end, up to `limit` bytes."""

    def spoil(handler: Handler, answer: Answer) -> None:
        handler.begin(answer, None)
        for _ in range(limit >> 16):
            handler.wfile.write(bytes(1 << 16))

    return spoil


@contextmanager
def chaos(upstream: str) -> Iterator[Chaos]:
    """A proxy in front of the server at the URL `upstream`."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    running = Chaos(f"127.0.0.1:{server.server_port}")
    kind = type("Bound", (Handler,), {"chaos": running, "upstream": upstream})
    server.RequestHandlerClass = kind
    with serving(server):
        yield running
