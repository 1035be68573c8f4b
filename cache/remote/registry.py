"""A remote in an OCI registry, by oras: it finds the credentials and speaks the token protocol.

Its own retries take minutes, its downloads have no deadline and its `pull` unpacks archives: only
its single requests are used, over a session that knows its hosts. `tags.py` has the layout.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import oras.auth
import oras.logger
import oras.provider
import requests

from vcc.cache.digest import Digest
from vcc.cache.errors import RemoteError, UsageError, VccError
from vcc.cache.remote.base import Absent, Blob, Denied, Sink
from vcc.cache.remote.http import Session, announced, check, network, read_body, small_body
from vcc.cache.remote.patience import Limits
from vcc.cache.remote.tags import (
    EMPTY,
    MANIFEST_TYPE,
    MAX_MANIFEST,
    blob_of,
    file_of,
    manifest_of,
    path_of,
    tag_of,
)
from vcc.cache.remote.url import RemoteUrl, is_loopback, is_public, scrubbed

MAX_PAGE = 8 << 20
MAX_PAGES = 10_000
PAGE = 1000


def open_registry(url: RemoteUrl, limits: Limits) -> Registry:
    """The repository at a URL; nothing is sent yet. A helper of docker may be asked for a login.

    Raises:
        UsageError: plain HTTP is asked for on the open internet, or docker's config is broken.
    """
    plain = url.options.get("tls", "off" if is_loopback(url.host) else "on") == "off"
    if plain and is_public(url.host):
        raise UsageError(
            "tls=off is for hosts of your own site", f"{url.host} is one of the open internet"
        )
    home = f"{'http' if plain else 'https'}://{url.host}"
    session = Session(url.hosts, home, limits, url.options.get("ca", ""))
    return Registry(url, home, _client(url, session, plain))


def _client(url: RemoteUrl, session: Session, plain: bool) -> _Client:
    client = _Client(hostname=url.host, insecure=plain)
    client.session, client.auth.session = session, session
    if any(url.user):
        client.auth.set_basic_auth(*url.user)
        return client
    try:
        client.auth.load_configs(client.get_container(f"{url.host}/{url.path}"))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise UsageError(
            "docker's config with the credentials of registries cannot be read",
            type(error).__name__,
            "Repair ~/.docker/config.json, or log in again: docker login",
        ) from None
    return client


class _Auth(oras.auth.TokenAuth):  # type: ignore[misc]
    """Tokens, and plain passwords too: oras would ask their realm for a token."""

    def authenticate_request(
        self, original: requests.Response, headers: dict[str, str], refresh: bool = False
    ) -> tuple[dict[str, str], bool]:
        """Headers that answer a 401, and whether there are any."""
        asked = original.headers.get("Www-Authenticate", "")
        if not asked.lower().startswith("basic"):
            answer: tuple[dict[str, str], bool] = super().authenticate_request(
                original, headers, refresh
            )
            return answer
        password = getattr(self, "_basic_auth", "")
        named = {"Authorization": f"Basic {password}"} if password else {}
        return {**headers, **named}, bool(password)


class _Client(oras.provider.Registry):  # type: ignore[misc]
    """oras without its retries and its words on standard error."""

    auth: Any

    def __init__(self, **options: Any) -> None:
        oras.logger.logger.quiet = True
        super().__init__(**options)
        given, self.auth = self.auth, _Auth()
        self.auth.prefix, self.auth._tls_verify = given.prefix, given._tls_verify

    def once(self, method: str, url: str, **options: Any) -> requests.Response:
        """One request, with one more for a token where the registry asks for it."""
        attempt = oras.provider.Registry.do_request.__wrapped__
        response: requests.Response = attempt(self, url, method, **options)
        return response

    @property
    def token(self) -> str | None:
        """The token that requests bear now."""
        found: str | None = self.auth.token
        return found

    def forget(self, token: str | None) -> None:
        """The next request asks for a new token, unless another thread has got one already."""
        if token in (None, self.token):
            self.auth.token = None


@dataclass(slots=True)
class Registry:
    """See `Remote`.

    Args:
        place: its URL.
        home: scheme, host and port.
        client: sends requests.
    """

    place: RemoteUrl
    home: str
    client: _Client = field(repr=False)
    is_registry: bool = field(default=True, init=False)

    @property
    def url(self) -> str:
        """See `Remote`."""
        return self.place.shown

    @property
    def public(self) -> bool:
        """See `Remote`."""
        return is_public(self.place.host)

    def size(self, path: str) -> int | None:
        """See `Remote`."""
        what = f"looking for {path}"
        try:
            digest = blob_of(path)
            return (
                self._tagged(path, what).size if digest is None else self._blob_size(digest, what)
            )
        except Absent:
            return None

    def get(self, path: str, sink: Sink, *, limit: int, start: int = 0) -> None:
        """See `Remote`."""
        what = f"reading {path}"
        digest = blob_of(path)
        if digest is None:
            file = self._tagged(path, what)
            if file.size > limit:
                raise RemoteError(f"{what}: it is too long", f"{limit} bytes belong there")
            digest = file.digest
        headers = {"Range": f"bytes={start}-"} if start else {}
        url = f"{self._api}/blobs/sha256:{digest}"
        with self._answer("GET", url, what, headers=headers) as response:
            check(response, what, (200, 206) if start else (200,))
            skip = start if response.status_code == 200 else 0
            read_body(response, sink, what, limit=limit - start, skip=skip)

    def put(
        self, path: str, data: bytes, *, replace: bool = False, keeps: Sequence[Blob] = ()
    ) -> bool:
        """See `Remote`. A registry has no conditions: two that put at once may both be told yes."""
        what = f"writing {path}"
        digest = blob_of(path)
        if not replace and self.size(path) is not None:
            return False
        if digest is not None:
            self._upload(data, what)
            return True
        manifest = manifest_of(path, data, keeps)
        if len(manifest) > MAX_MANIFEST:
            raise RemoteError(f"{what}: it names too many blobs for a registry")
        for part in (EMPTY, data):
            if self._missing(Digest.of(part), what):
                self._upload(part, what)
        url, headers = f"{self._api}/manifests/{tag_of(path)}", {"Content-Type": MANIFEST_TYPE}
        with self._answer("PUT", url, what, data=manifest, headers=headers) as response:
            check(response, what, (200, 201, 202))
        return True

    def paths(self, prefix: str) -> Iterator[str]:
        """See `Remote`. A registry lists all its tags, whatever the prefix."""
        what = f"listing {prefix}"
        url = f"{self._api}/tags/list?n={PAGE}"
        for _ in range(MAX_PAGES):
            try:
                tags, following = self._page(url, what)
            except Absent:  # a repository that nothing was pushed to yet
                return
            paths = (path_of(tag) for tag in tags)
            yield from (path for path in paths if path is not None and path.startswith(prefix))
            if not following:
                return
            url = following
        raise RemoteError(f"{what}: the listing does not end", f"{MAX_PAGES} pages were read")

    def close(self) -> None:
        """See `Remote`."""
        self.client.session.close()

    @property
    def _api(self) -> str:
        return f"{self.home}/v2/{self.place.path}"

    @contextmanager
    def _answer(
        self, method: str, url: str, what: str, **options: Any
    ) -> Iterator[requests.Response]:
        """The answer to a request; a token that is refused is replaced once."""
        for again in (False, True):
            token = self.client.token
            response = self._sent(method, url, what, options)
            if response.status_code in (401, 403) and not again:
                response.close()
                self.client.forget(token)
                continue
            try:
                yield response
            finally:
                response.close()
            return

    def _sent(
        self, method: str, url: str, what: str, options: Mapping[str, Any]
    ) -> requests.Response:
        headers = {"Accept-Encoding": "identity", **options.get("headers", {})}
        try:
            with network(what):
                return self.client.once(method, url, stream=True, **{**options, "headers": headers})
        except VccError:
            raise
        except Exception as error:  # oras raises ValueError and what parsing an answer raises
            why = (
                scrubbed(str(error), 100) if isinstance(error, ValueError) else type(error).__name__
            )
            hint = f"Log in: docker login {self.place.host}"
            raise Denied(f"{what}: the registry does not let us in", why, hint) from None

    def _page(self, url: str, what: str) -> tuple[list[str], str]:
        """Tags, and the URL of the next page; empty at the last."""
        with self._answer("GET", url, what) as response:
            check(response, what, (200,))
            body = small_body(response, what, MAX_PAGE)
            link = response.links.get("next", {}).get("url", "")
        try:
            tags = list(json.loads(body).get("tags") or ())
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise RemoteError(f"{what}: the answer is no list of tags") from error
        # Only its query is taken: the place stays the one we asked.
        following = f"{self._api}/tags/list?{urlsplit(urljoin(url, link)).query}" if link else ""
        return [tag for tag in tags if isinstance(tag, str)], following

    def _blob_size(self, digest: Digest, what: str) -> int:
        with self._answer("HEAD", f"{self._api}/blobs/sha256:{digest}", what) as response:
            check(response, what, (200,))
            found = announced(response.headers)
        if found is None:
            raise RemoteError(f"{what}: the remote does not say its size")
        return found

    def _missing(self, digest: Digest, what: str) -> bool:
        try:
            self._blob_size(digest, what)
        except Absent:
            return True
        return False

    def _tagged(self, path: str, what: str) -> Blob:
        """The file that a tag is."""
        url, headers = f"{self._api}/manifests/{tag_of(path)}", {"Accept": MANIFEST_TYPE}
        with self._answer("GET", url, what, headers=headers) as response:
            check(response, what, (200,))
            return file_of(small_body(response, what, MAX_MANIFEST), what)

    def _upload(self, data: bytes, what: str) -> None:
        """Store one blob; the registry compares its digest."""
        with self._answer("POST", f"{self._api}/blobs/uploads/", what) as response:
            check(response, what, (202,))
            place = urljoin(f"{self.home}/", response.headers.get("Location", ""))
        digest = urlencode({"digest": f"sha256:{Digest.of(data)}"})
        url = f"{place}{'&' if urlsplit(place).query else '?'}{digest}"
        headers = {"Content-Type": "application/octet-stream"}
        with self._answer("PUT", url, what, data=data, headers=headers) as response:
            check(response, what, (201,))
