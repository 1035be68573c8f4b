"""A remote in a bucket: S3 and what speaks its protocol; Google's and Azure's by the same client.

obstore finds credentials, signs, lists and puts. When it reads it follows redirects, so what it
signed is read by `http.py`, and a listing goes through `guard.py`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal
from urllib.parse import urlsplit

import obstore
import requests
from obstore.exceptions import AlreadyExistsError

from vcc.cache.errors import RemoteError, UsageError
from vcc.cache.remote.apart import apart
from vcc.cache.remote.base import Absent, Blob, Sink
from vcc.cache.remote.clients import Client, NoConditions, check_threads, explained, made
from vcc.cache.remote.guard import Guard, guarded
from vcc.cache.remote.http import Elsewhere, Session, announced, answer, check, read_body
from vcc.cache.remote.patience import Limits
from vcc.cache.remote.url import RemoteUrl, is_public

SIGNED_FOR = timedelta(minutes=15)
MAX_PUT = 5 * 10**9
"""Bytes of one PUT of S3; larger blobs need parts, which cannot be put if absent."""
SLOWEST = 1 << 16
"""Bytes a second that a PUT is given time for."""
PAGE = 1000
GRACE_S = 2.0
Mode = Literal["create", "overwrite"]


def open_bucket(url: RemoteUrl, limits: Limits) -> Bucket:
    """The bucket at a URL; nothing is sent yet.

    Raises:
        UsageError: the client does not accept it.
    """
    endpoint = url.options.get("endpoint", "")
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        raise UsageError("the endpoint is not a web address", "", "such as https://minio.example")
    return Bucket(url, limits)


@dataclass(slots=True)
class Bucket:
    """See `Remote`.

    Args:
        place: its URL.
        limits: bounds of each request.
    """

    place: RemoteUrl
    limits: Limits
    is_registry: bool = field(default=False, init=False)
    _unconditional: bool = field(default=False, init=False)
    _clients: dict[int, Client] = field(default_factory=dict, init=False, repr=False)
    _session: Session | None = field(default=None, init=False, repr=False)

    @property
    def url(self) -> str:
        """See `Remote`."""
        return self.place.shown

    @property
    def public(self) -> bool:
        """See `Remote`."""
        endpoint = self._endpoint
        return is_public(urlsplit(endpoint).netloc.rpartition("@")[2]) if endpoint else True

    def size(self, path: str) -> int | None:
        """See `Remote`."""
        what = f"looking for {path}"
        try:
            with self._answer("HEAD", path, what) as response:
                check(response, what, (200,))
                found = announced(response.headers)
        except Absent:
            return None
        if found is None:
            raise RemoteError(f"{what}: the remote does not say its size")
        return found

    def get(self, path: str, sink: Sink, *, limit: int, start: int = 0) -> None:
        """See `Remote`."""
        what = f"reading {path}"
        headers = {"Range": f"bytes={start}-"} if start else {}
        with self._answer("GET", path, what, headers=headers) as response:
            check(response, what, (200, 206) if start else (200,))
            skip = start if response.status_code == 200 else 0
            read_body(response, sink, what, limit=limit - start, skip=skip)

    def put(
        self, path: str, data: bytes, *, replace: bool = False, keeps: Sequence[Blob] = ()
    ) -> bool:
        """See `Remote`. Without conditions in the store, look first; a race may then put twice."""
        what = f"writing {path}"
        if len(data) > MAX_PUT:
            raise RemoteError(f"{what}: it is too large", f"{len(data)} bytes, at most {MAX_PUT}")
        if not replace and not self._unconditional:
            try:
                self._put(path, data, "create", what)
                return True
            except AlreadyExistsError:
                return False
            except NoConditions:
                self._unconditional = True
        if not replace and self.size(path) is not None:
            return False
        self._put(path, data, "overwrite", what)
        return True

    def paths(self, prefix: str) -> Iterator[str]:
        """See `Remote`."""
        what = f"listing {prefix}"
        with self._guard() as guard, _of_bucket(what), explained(what, guard):
            proxy = "" if guard is None else guard.url
            client = made(self.place, self.limits, math.ceil(self.limits.idle_s), proxy)
            pages, count = obstore.list(client, prefix, chunk_size=PAGE), 0
            while (page := apart(lambda: next(pages, None), self._wait_s)) is not None:
                count += len(page)
                yield from (item["path"] for item in page)
            if not count:
                self._check_empty(what, guard)

    def close(self) -> None:
        """See `Remote`."""
        if self._session is not None:
            self._session.close()

    def _check_empty(self, what: str, guard: Guard | None) -> None:
        """The client reads a web page as an empty listing: tell the two apart.

        Where the connection is not encrypted the guard sees the page. Else our own reader asks for
        a name that nobody can have written: who has that answers everything with a page.

        Raises:
            RemoteError: it is a page, or we are sent elsewhere.
        """
        if (guard is not None and guard.pages) or self._has_anything(what):
            raise RemoteError(
                f"{what}: the answer is a web page and no listing",
                "a login, or a proxy's page?",
                "Open the endpoint in a browser; check it, HTTPS_PROXY and NO_PROXY",
            )

    def _has_anything(self, what: str) -> bool:
        path = f"v1/{os.urandom(32).hex()}"
        try:
            with self._answer("HEAD", path, what) as response:
                return response.status_code == 200
        except Elsewhere:
            raise
        except RemoteError:  # says nothing of the listing
            return False

    @property
    def _wait_s(self) -> float:
        """Seconds to wait for the client, whose own deadline comes first where it works."""
        return self.limits.connect_s + self.limits.idle_s + GRACE_S

    @property
    def _endpoint(self) -> str:
        return self.place.options.get("endpoint", "")

    @contextmanager
    def _answer(
        self, method: Literal["GET", "HEAD"], path: str, what: str, **options: Any
    ) -> Iterator[requests.Response]:
        """The answer to a signed request; credentials that are refused are looked up once more."""
        for again in (False, True):
            url = self._signed(method, path, what)
            with answer(self._reader(url), method, url, what, **options) as response:
                if response.status_code in (401, 403) and not again:
                    self._clients.clear()
                    continue
                yield response
                return

    def _signed(self, method: Literal["GET", "HEAD"], path: str, what: str) -> str:
        client = self._client(math.ceil(self.limits.idle_s))
        with explained(what):
            return apart(lambda: obstore.sign(client, method, path, SIGNED_FOR), self._wait_s)

    def _reader(self, url: str) -> Session:
        if self._session is None:
            parts = urlsplit(url)
            home, ca = f"{parts.scheme}://{parts.netloc}", self.place.options.get("ca", "")
            self._session = Session(self.place.hosts, home, self.limits, ca)
        return self._session

    def _put(self, path: str, data: bytes, mode: Mode, what: str) -> None:
        seconds = 2 ** math.ceil(math.log2(60 + len(data) / SLOWEST))
        client = self._client(seconds)
        with _of_bucket(what), explained(what):
            apart(
                lambda: obstore.put(client, path, data, mode=mode, use_multipart=False),
                seconds + GRACE_S,
            )

    def _client(self, timeout_s: int) -> Client:
        """One of a few clients: a large blob is given more time than a look-up."""
        check_threads()
        if timeout_s not in self._clients:
            self._clients[timeout_s] = made(self.place, self.limits, timeout_s)
        return self._clients[timeout_s]

    def _guard(self) -> AbstractContextManager[Guard | None]:
        """A guard where the endpoint is the user's own; a cloud's is reached by https only."""
        if not self._endpoint:
            return nullcontext(None)
        return guarded(self._endpoint, self.limits.idle_s)


@contextmanager
def _of_bucket(what: str) -> Iterator[None]:
    """To list or to put, only the bucket itself can be absent; that is no miss."""
    try:
        yield
    except Absent as error:
        raise RemoteError(f"{what}: there is no such bucket", error.why) from error
