"""The guard: a proxy on loopback through which a client reaches its endpoint and nothing else.

obstore lists a bucket with a client that follows any redirect, and cannot be told not to. So it is
given this proxy, which opens connections to one host and port, lets encrypted ones through as they
are, and refuses the rest. It lives as long as one listing.
"""

from __future__ import annotations

import base64
import re
import selectors
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from vcc.cache.remote.url import scrubbed

MAX_HEAD = 1 << 15
CHUNK = 1 << 16
MAX_CONNECTIONS = 16
_PORTS = {"http": 80, "https": 443}
_PAGE = re.compile(
    rb"HTTP/1\.[01] 200 (?:(?!\r\n\r\n).)*?"
    rb"(?:\r\ncontent-type: *text/html|\r\n\r\n[^<]*<(?:!doctype )?html)",
    re.IGNORECASE | re.DOTALL,
)
_HEAD = re.compile(rb"(CONNECT|GET|HEAD) ([!-~]+) HTTP/1\.[01]\r\n", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Guard:
    """A running guard.

    Args:
        url: of the proxy, for the client.
        refused: where else the client wanted to go, for the message; filled as it happens.
        pages: answers that were web pages, as far as they were not encrypted; filled likewise.
    """

    url: str
    refused: list[str] = field(default_factory=list)
    pages: list[str] = field(default_factory=list)


@contextmanager
def guarded(endpoint: str, idle_s: float) -> Iterator[Guard]:
    """A guard in front of `endpoint` (scheme, host and perhaps port).

    Args:
        idle_s: seconds without a byte after which a connection is closed.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        guard = Guard(f"http://127.0.0.1:{server.getsockname()[1]}")
        home = address(urlsplit(endpoint))
        serve = threading.Thread(target=_serve, args=(server, guard, home, idle_s), daemon=True)
        serve.start()
        try:
            yield guard
        finally:
            with suppress(OSError):  # wakes the accept
                server.shutdown(socket.SHUT_RDWR)
            serve.join(1.0)


def address(url: SplitResult) -> tuple[str, int]:
    """Host and port of a URL.

    Raises:
        ValueError: it has none.
    """
    port = url.port or _PORTS.get(url.scheme, 0)
    if not url.hostname or not port:
        raise ValueError("no host")
    return url.hostname.lower(), port


def _serve(server: socket.socket, guard: Guard, home: tuple[str, int], idle_s: float) -> None:
    room = threading.Semaphore(MAX_CONNECTIONS)
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        client.settimeout(idle_s)
        args = (client, guard, home, idle_s, room)
        if room.acquire(blocking=False):
            threading.Thread(target=_handle, args=args, daemon=True).start()
        else:
            client.close()


def _handle(
    client: socket.socket,
    guard: Guard,
    home: tuple[str, int],
    idle_s: float,
    room: threading.Semaphore,
) -> None:
    try:
        with client, suppress(OSError, ValueError):
            head = _head(client)
            target = _target(head)
            if target != home:
                guard.refused.append(scrubbed(f"{target[0]}:{target[1]}", 100))
                client.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
                return
            with _upstream(client, head, home, idle_s) as server:
                _relay(client, server, idle_s, guard)
    finally:
        room.release()


def _head(client: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        part = client.recv(CHUNK)
        head += part
        if not part or len(head) > MAX_HEAD:
            raise ValueError("no head")
    return head


def _target(head: bytes) -> tuple[str, int]:
    """Where a request wants to go."""
    found = _HEAD.match(head)
    if found is None:
        raise ValueError("not a request that lists")
    where = found[2].decode("ascii")
    return address(urlsplit(f"//{where}" if found[1].upper() == b"CONNECT" else where))


@contextmanager
def _upstream(
    client: socket.socket, head: bytes, home: tuple[str, int], idle_s: float
) -> Iterator[socket.socket]:
    """The connection onward, its request sent; through the environment's proxy if one is set."""
    secure = head[:8].upper() == b"CONNECT "
    proxy = _proxy("https" if secure else "http", home[0])
    place = address(proxy) if proxy is not None else home
    with socket.create_connection(place, timeout=idle_s) as server:
        if proxy is not None:
            server.sendall(_with_header(head, _authorisation(proxy), secure))
        elif secure:
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            server.sendall(_with_header(_origin_form(head), b"", secure))
        yield server


def _proxy(scheme: str, host: str) -> SplitResult | None:
    if urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    named = proxies.get(scheme) or proxies.get("all") or ""
    parts = urlsplit(named if "://" in named else f"http://{named}") if named else None
    return parts if parts is not None and parts.scheme == "http" else None


def _authorisation(proxy: SplitResult) -> bytes:
    if proxy.username is None:
        return b""
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
    return b"Proxy-Authorization: Basic " + base64.b64encode(pair) + b"\r\n"


def _origin_form(head: bytes) -> bytes:
    """`GET http://host/path` is `GET /path` for the host itself."""
    method, where, rest = head.split(b" ", 2)
    path = where.split(b"://", 1)[1].partition(b"/")[2]
    return b" ".join((method, b"/" + path, rest))


def _with_header(head: bytes, header: bytes, secure: bool) -> bytes:
    """The head with one more header; a plain connection is good for one request only."""
    first, _, rest = head.partition(b"\r\n")
    close = b"" if secure else b"Connection: close\r\n"
    return first + b"\r\n" + header + close + rest


def _relay(client: socket.socket, server: socket.socket, idle_s: float, guard: Guard) -> None:
    """Carry bytes both ways until one side ends; a page is noted before the client has it."""
    other, begun = {client: server, server: client}, b""
    with selectors.DefaultSelector() as waiting:  # select() takes small descriptors only
        for one in other:
            waiting.register(one, selectors.EVENT_READ)
        while ready := waiting.select(idle_s):
            for key, _ in ready:
                one = client if key.fileobj is client else server
                part = one.recv(CHUNK)
                if not part:
                    return
                if one is server and len(begun) < MAX_HEAD:
                    begun += part
                    _note_page(guard, begun)
                other[one].sendall(part)


def _note_page(guard: Guard, begun: bytes) -> None:
    if not guard.pages and _PAGE.match(begun):
        guard.pages.append(scrubbed(begun.split(b"\r\n", 1)[0].decode("latin-1"), 100))
