"""Opening a remote by its URL; the client of its scheme is imported here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vcc.cache.errors import UsageError
from vcc.cache.extras import CLIENTS, install
from vcc.cache.remote.base import Offline, Remote
from vcc.cache.remote.patience import BY_HAND, Limits
from vcc.cache.remote.url import RemoteUrl, parse_url
from vcc.cache.settings import read_settings


def open_remote(url: str, limits: Limits = BY_HAND) -> Remote:
    """The remote at a URL. Nothing is sent before it is asked for something.

    Args:
        url: see `url.py`.
        limits: bounds of each request.

    Raises:
        UsageError: the URL is wrong, or the client of its scheme is not installed.
        Offline: a network is needed, and VCC_OFFLINE forbids it.
    """
    parsed = parse_url(url)
    if read_settings().offline and parsed.scheme != "file":
        raise Offline(
            f"the remote {parsed.shown} is not asked", "VCC_OFFLINE is set", "Unset VCC_OFFLINE"
        )
    try:
        return _OPENERS[parsed.scheme](parsed, limits)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "vcc":
            raise
        raise UsageError(
            f"{parsed.scheme}:// remotes need a client that is not installed",
            f"no module {error.name}",
            install(*CLIENTS),
        ) from error


def _file(url: RemoteUrl, limits: Limits) -> Remote:
    from vcc.cache.remote.file import FileRemote

    return FileRemote(url)


def _bucket(url: RemoteUrl, limits: Limits) -> Remote:
    from vcc.cache.remote.bucket import open_bucket

    return open_bucket(url, limits)


def _registry(url: RemoteUrl, limits: Limits) -> Remote:
    from vcc.cache.remote.registry import open_registry

    return open_registry(url, limits)


_OPENERS: Mapping[str, Callable[[RemoteUrl, Limits], Remote]] = {
    "file": _file,
    "s3": _bucket,
    "gs": _bucket,
    "az": _bucket,
    "oci": _registry,
}
