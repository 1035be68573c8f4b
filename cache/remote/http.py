"""HTTP with bounds: a closed set of hosts, deadlines for every read, bodies that end.

A server is believed nothing: it may send us elsewhere, drip bytes, never end, or answer with the
page of a login. Of what it says about an error only the code is shown: it may repeat what we sent.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3

from vcc.cache.errors import RemoteError
from vcc.cache.remote.base import Absent, Denied, Passing, Sink
from vcc.cache.remote.patience import Limits
from vcc.cache.remote.url import scrubbed, without_port

CHUNK = 1 << 16
MAX_ERROR = 1 << 14
MAX_REDIRECTS = 3
# Too early, too many, and the server's own faults; the rest would be answered the same again.
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504, 507, 509})
_NUMBER = re.compile(r"[0-9]{1,18}")
_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,64})</Code>|\"code\"\s*:\s*\"([A-Z_]{1,40})\"")


class Elsewhere(RemoteError):
    """The remote sends us to a host that the user did not name."""

    id = "REMOTE_REDIRECT"


class Session(requests.Session):
    """A session that reaches the hosts it was made for and no other.

    Args:
        hosts: names or addresses, without ports.
        home: scheme and host:port of the remote itself, such as `https://ghcr.io`.
        limits: deadlines.
        ca: file with the certificates to trust; empty for the system's.
    """

    def __init__(self, hosts: frozenset[str], home: str, limits: Limits, ca: str = "") -> None:
        super().__init__()
        self._hosts, self._home, self._limits = hosts, urlsplit(home), limits
        self._ca = ca
        self.max_redirects = MAX_REDIRECTS
        self.auth = _no_netrc  # requests would look for a password of the host in ~/.netrc
        _quieten()

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send one request, redirected ones among them, after its URL was checked."""
        self._check(request.url or "")
        options["timeout"] = (self._limits.connect_s, self._limits.idle_s)
        if self._ca:
            options["verify"] = self._ca
        return super().send(request, **options)

    def _check(self, url: str) -> None:
        """Raise Elsewhere for a URL that is not of the hosts, or that gives up encryption."""
        try:
            parts = urlsplit(url)
            same = (parts.scheme, parts.netloc.rpartition("@")[2].lower()) == (
                self._home.scheme,
                self._home.netloc.lower(),
            )
        except ValueError:
            parts, same = urlsplit(""), False
        name = without_port(parts.netloc.rpartition("@")[2])
        if same or (parts.scheme == "https" and name in self._hosts):
            return
        place = scrubbed(f"{parts.scheme}://{name}") if name else "a place that is no host"
        raise Elsewhere(
            f"{self._home.netloc} sends us to {place}",
            "a remote may not lead to another host, scheme or port",
            f"If that is right, name it in the URL: hosts={scrubbed(name, 80)}"
            if parts.scheme == "https"
            else "",
        )


@contextmanager
def answer(
    session: requests.Session, method: str, url: str, what: str, **options: Any
) -> Iterator[requests.Response]:
    """The answer to a request, its body not read yet; failures of the network are RemoteErrors.

    Args:
        what: what is done, for messages, such as "reading blob 0123".
        options: of `requests`.
    """
    headers = {"Accept-Encoding": "identity", **options.pop("headers", {})}
    with network(what):
        response = session.request(method, url, headers=headers, stream=True, **options)
    try:
        yield response
    finally:
        response.close()


@contextmanager
def network(what: str) -> Iterator[None]:
    """Turn what requests and urllib3 raise inside into RemoteErrors."""
    try:
        yield
    except requests.exceptions.SSLError as error:
        raise RemoteError(
            f"{what}: the server's certificate is not accepted",
            _reason(error),
            "Name the file of its authority in the URL: ca=/path/ca.pem",
        ) from None
    except requests.exceptions.ProxyError as error:
        raise Passing(f"{what}: the proxy does not answer", _reason(error)) from None
    except (
        requests.exceptions.InvalidSchema,
        requests.exceptions.InvalidURL,
        requests.exceptions.MissingSchema,
    ):
        raise Elsewhere(f"{what}: the remote sends us to what is no web address") from None
    except requests.exceptions.TooManyRedirects:
        raise Elsewhere(f"{what}: the remote sends us from place to place") from None
    except (
        requests.exceptions.RequestException,
        urllib3.exceptions.HTTPError,
        OSError,
    ) as error:
        raise Passing(what + ": " + _kind(error), _reason(error)) from None


def check(response: requests.Response, what: str, good: tuple[int, ...]) -> None:
    """Raise what a status means, unless it is one of `good`.

    Raises:
        Absent, Denied, Passing, RemoteError: by the status.
    """
    status = response.status_code
    if status in good:
        return
    code = _code(response)
    why = f"status {status}" + (f", {code}" if code else "")
    if status in (404, 410):
        raise Absent(f"{what}: the remote does not have it", why)
    if status in (401, 403):
        raise Denied(f"{what}: the remote refuses", why, "Check the credentials and their rights")
    if status in _PASSING:
        raise Passing(f"{what}: the remote fails", why, after=retry_after(response.headers))
    raise RemoteError(f"{what}: the remote refuses", why)


def read_body(
    response: requests.Response, sink: Sink, what: str, *, limit: int, skip: int = 0
) -> None:
    """Give the body to `sink` as it comes.

    Args:
        limit: bytes that `sink` may get.
        skip: bytes at its beginning that are left out.

    Raises:
        RemoteError: it is longer than `limit`, or not what was asked for.
        Passing: it ended early or nothing came for too long.
    """
    length = announced(response.headers)
    if length is not None and length > limit + skip:
        raise _too_long(response, what, limit, f"it announces {length} bytes")
    left = limit
    while True:
        with network(what):
            part = response.raw.read1(CHUNK, decode_content=False)
        if not part:
            return
        part, skip = part[skip:], max(0, skip - len(part))
        if len(part) > left:
            raise _too_long(response, what, limit, "it does not end there")
        left -= len(part)
        if part:
            sink(part)


def small_body(response: requests.Response, what: str, limit: int) -> bytes:
    """The whole body, at most `limit` bytes; raises as `read_body`."""
    parts: list[bytes] = []
    read_body(response, parts.append, what, limit=limit)
    return b"".join(parts)


def announced(headers: Mapping[str, str]) -> int | None:
    """The bytes that a body is said to have; None where nothing sensible is said."""
    text = headers.get("Content-Length", "")
    return int(text) if _NUMBER.fullmatch(text) else None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait; None where it does not say, or not clearly."""
    text = headers.get("Retry-After", "").strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time()) if text else None
    except (ValueError, TypeError, OverflowError):
        return None


def _too_long(response: requests.Response, what: str, limit: int, why: str) -> RemoteError:
    kind = response.headers.get("Content-Type", "").partition(";")[0]
    page = ", and is a web page: a login?" if kind == "text/html" else ""
    return RemoteError(
        f"{what}: the answer is too long", f"{limit} bytes belong there, {why}{page}"
    )


def _code(response: requests.Response) -> str:
    """The error code of S3 or of a registry; nothing else of the body is shown."""
    parts: list[bytes] = []
    with suppress(RemoteError):
        read_body(response, parts.append, "error", limit=MAX_ERROR)
    found = _CODE.search(b"".join(parts))
    return (found[1] or found[2]).decode() if found else ""


def _kind(error: Exception) -> str:
    if isinstance(error, (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError)):
        return "nothing came in time"
    return "the connection failed"


def _reason(error: Exception) -> str:
    """The innermost cause in one line: the outer ones repeat the URL with its signature."""
    inner: BaseException = error
    while inner.__cause__ or inner.__context__:
        inner = inner.__cause__ or inner.__context__ or inner
    text = getattr(inner, "strerror", None) or getattr(inner, "verify_message", "") or str(inner)
    return scrubbed(re.sub(r"<[^<>]*object at 0x[0-9a-f]+>:? ?", "", text), 160)


def _no_netrc(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


class _Scrubbing(logging.Filter):
    """At debug level urllib3 logs every path with its query, the signature of a URL among it."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = scrubbed(_without_query(record.getMessage()), 1000), ()
        return True


def _without_query(line: str) -> str:
    return re.sub(r"\?[^\s\"']*", "?…", line)


_SCRUBBING = _Scrubbing()


def _quieten() -> None:
    for name in ("urllib3.connectionpool", "urllib3.util.retry", "requests"):
        logging.getLogger(name).addFilter(_SCRUBBING)  # the same filter is added once
