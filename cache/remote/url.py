"""URLs of remotes: parsed once, and shown without anything that could be a secret.

file:///mnt/share/vcc
s3://bucket/prefix?endpoint=https://minio.example:9000&region=us-east-1
gs://bucket/prefix, az://container/prefix
oci://registry.example/team/vcc-cache
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from vcc.cache.errors import UsageError

_NETWORK = ("ca", "hosts")
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "file": (),
    "s3": ("endpoint", "region", *_NETWORK),
    "gs": _NETWORK,
    "az": ("account", *_NETWORK),
    "oci": ("tls", *_NETWORK),
}
"""Scheme -> the options that its URLs may have."""

MAX_URL = 2048
_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\"'<>]*", re.IGNORECASE)
_TOKEN = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]+")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]+")
# Top-level names that never leave a site.
_INNER = ("local", "localhost", "internal", "lan", "svc", "test", "home", "corp", "intranet")


@dataclass(frozen=True, slots=True)
class RemoteUrl:
    """A parsed URL.

    Args:
        scheme: a key of `OPTIONS`.
        host: bucket, container, or host and port of a registry; empty for file.
        path: without slashes at its ends; of a file absolute.
        options: those of the query.
        user: user and password of a registry, ("", "") for none. Never shown.
    """

    scheme: str
    host: str
    path: str
    options: Mapping[str, str]
    user: tuple[str, str] = field(default=("", ""), repr=False)

    @property
    def shown(self) -> str:
        """The URL for people and records."""
        query = "&".join(f"{name}={bare(value)}" for name, value in self.options.items())
        slash = "/" if self.path and not self.path.startswith("/") else ""
        return f"{self.scheme}://{self.host}{slash}{self.path}" + (f"?{query}" if query else "")

    @property
    def hosts(self) -> frozenset[str]:
        """Other hosts that the remote may send us to, which the user named."""
        named = self.options.get("hosts", "").split(",")
        return frozenset(name.strip().lower() for name in named if name.strip())


def parse_url(text: str) -> RemoteUrl:
    """Read the URL of a remote.

    Raises:
        UsageError: it is none, or has something that a URL of its scheme does not; the message
            shows nothing that could be a secret.
    """
    try:
        parts = urlsplit(text)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        raise _wrong("it cannot be read") from None
    if parts.scheme not in OPTIONS or len(text) > MAX_URL or parts.fragment:
        raise _wrong(f"known: {', '.join(f'{name}://' for name in OPTIONS)}")
    _check_options(parts.scheme, query)
    if parts.username is not None and parts.scheme != "oci":
        raise _wrong(
            f"credentials stand in a {parts.scheme}:// URL",
            "Give them to the client by its own variables, such as AWS_ACCESS_KEY_ID",
        )
    user = (unquote(parts.username or ""), unquote(parts.password or ""))
    # Buckets may be in capitals; hosts of registries are the same in any case.
    at = parts.netloc.rpartition("@")[2]
    place = f"[{host}]{port}" if ":" in host else (host + port if parts.scheme == "oci" else at)
    found = RemoteUrl(parts.scheme, place, _path(parts.scheme, parts.path), dict(query), user)
    _check_place(found)
    return found


def bare(text: str) -> str:
    """A URL without user and query; other text as it is."""
    head, mark, rest = text.partition("://")
    return text if not mark else f"{head}://{rest.partition('?')[0].rpartition('@')[2]}"


def scrubbed(text: str, longest: int = 300) -> str:
    """Text of a client or server made fit for a message: one line, no user, query or token."""
    line = _UNPRINTABLE.sub(" ", text)
    line = _URL.sub(lambda found: bare(found[0]), line)
    line = _TOKEN.sub(lambda found: f"{found[1]} …", line)
    return line if len(line) <= longest else line[: longest - 1] + "…"


def is_public(host: str) -> bool:
    """Whether a host is one of the open internet: not loopback, private, nor a name of a site.

    Args:
        host: name or address, with or without a port.
    """
    name = without_port(host)
    try:
        return ipaddress.ip_address(name).is_global
    except ValueError:
        return "." in name and name.rstrip(".").rpartition(".")[2] not in _INNER


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its very name."""
    name = without_port(host)
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def without_port(host: str) -> str:
    """Name or address alone: `[::1]:5000` is `::1`."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return (host.partition(":")[0] if host.count(":") == 1 else host).lower()


def _check_options(scheme: str, query: list[tuple[str, str]]) -> None:
    names = [name for name, _ in query]
    for name in names:
        if name not in OPTIONS[scheme]:  # its name may be the secret's, so it is not shown
            have = ", ".join(OPTIONS[scheme]) or "none"
            raise _wrong(
                f"a {scheme}:// URL has an option that is not known; known: {have}",
                "Credentials do not belong in a URL: give them by the client's own variables",
            )
    if len(names) != len(set(names)):
        raise _wrong("an option stands twice")


def _check_place(url: RemoteUrl) -> None:
    if url.scheme == "file":
        if url.host not in ("", "localhost") or not url.path.startswith("/"):
            raise _wrong("a file:// URL has an absolute path", "such as file:///mnt/share/vcc")
        if url.path == "/":  # what `file://$UNSET` says
            raise _wrong("a file:// URL names a directory", "such as file:///mnt/share/vcc")
        return
    if not url.host:
        raise _wrong(
            f"a {url.scheme}:// URL needs a {'registry' if url.scheme == 'oci' else 'bucket'}"
        )
    if url.scheme == "oci" and not re.fullmatch(r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*", url.path):
        raise _wrong("an oci:// URL names a repository", "such as oci://ghcr.io/team/vcc-cache")
    if url.options.get("tls", "on") not in ("on", "off"):
        raise _wrong("tls is on or off")


def _path(scheme: str, path: str) -> str:
    plain = unquote(path)
    if "\0" in plain or any(part in (".", "..") for part in plain.split("/")):
        raise _wrong("its path has a part that is not allowed")
    return plain.rstrip("/") or "/" if scheme == "file" else plain.strip("/")


def _wrong(why: str, hint: str = "") -> UsageError:
    return UsageError("this is not the URL of a remote", why, hint)
