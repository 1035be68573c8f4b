"""obstore's clients of buckets, and what their errors mean.

They find their credentials by themselves (AWS_ACCESS_KEY_ID, a role, ...). Tries are counted by
`patience.py`, so they make one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, S3Store

from vcc.cache.errors import RemoteError, UsageError, VccError
from vcc.cache.named_files import read_named
from vcc.cache.remote.base import Absent, Denied, Passing
from vcc.cache.remote.http import Elsewhere
from vcc.cache.remote.patience import Limits
from vcc.cache.remote.url import RemoteUrl, scrubbed

if TYPE_CHECKING:
    from obstore.store import ClientConfig

    from vcc.cache.remote.guard import Guard

Client: TypeAlias = "S3Store | GCSStore | AzureStore"

MOST_CERTIFICATES = 16 << 20
_ONCE: Any = {"max_retries": 0}
# Statuses below 500 that another attempt may not meet.
_PASSING = frozenset({408, 409, 425, 429})
_CREDENTIALS = "Check the credentials and their rights"
_STATUS = re.compile(r"status code: (\d{3})|status: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")


class _Process:
    """Whether this process was forked from one that had the client's threads."""

    forked = False

    @classmethod
    def note_fork(cls) -> None:
        cls.forked = True


os.register_at_fork(after_in_child=_Process.note_fork)


def check_threads() -> None:
    """Refuse a forked child: the client's threads are not in it, and it would wait for them.

    Raises:
        RemoteError: this is one.
    """
    if _Process.forked:
        raise RemoteError(
            "a bucket cannot be reached from a forked process",
            "the threads of its client stayed in the parent",
            "Start processes by spawn or forkserver, or ask the remote before forking",
        )


class NoConditions(Exception):
    """The store does not know If-None-Match."""


def made(url: RemoteUrl, limits: Limits, timeout_s: int, proxy: str = "") -> Client:
    """A client for the bucket at a URL; nothing is sent.

    Args:
        timeout_s: seconds for a whole request.
        proxy: that all requests go through; empty for those of the environment.

    Raises:
        UsageError: the client refuses the URL.
        RemoteError: this process was forked.
    """
    check_threads()
    options: ClientConfig = {
        "connect_timeout": timedelta(seconds=limits.connect_s),
        "timeout": timedelta(seconds=timeout_s),
        "allow_http": url.options.get("endpoint", "").startswith("http://"),
    }
    if proxy:
        options["proxy_url"] = proxy
    if "ca" in url.options:
        options["root_certificate"] = _certificates(url.options["ca"])
    try:
        return _MAKERS[url.scheme](url, options)
    except BaseError as error:
        raise UsageError("the client refuses the URL", scrubbed(_first_line(error))) from None


@contextmanager
def explained(what: str, guard: Guard | None = None) -> Iterator[None]:
    """Turn errors of obstore into RemoteErrors; of a body nothing is shown but its code.

    Raises:
        AlreadyExistsError: as it comes.
        NoConditions: as told.
    """
    try:
        yield
    except (AlreadyExistsError, VccError, NoConditions):
        raise
    except (NotFoundError, FileNotFoundError) as error:
        raise Absent(f"{what}: the remote does not have it", _why(error)) from None
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise Denied(f"{what}: the remote refuses", _why(error), _CREDENTIALS) from None
    except TimeoutError as error:
        raise RemoteError(f"{what}: the client does not answer", str(error)) from None
    except Exception as error:  # whatever it is, its text may hold what we sent
        if guard is not None and guard.refused:
            raise Elsewhere(
                f"{what}: the endpoint sends us to {guard.refused[-1]}",
                "a remote may not lead to another host, scheme or port",
            ) from None
        status = _status(error)
        if status == 501 or isinstance(error, NotImplementedError):
            raise NoConditions from None
        if status in (401, 403):
            raise Denied(f"{what}: the remote refuses", _why(error), _CREDENTIALS) from None
        if status == 404:
            raise Absent(f"{what}: the remote does not have it", _why(error)) from None
        final = 300 <= status < 500 and status not in _PASSING
        kind = RemoteError if final else Passing
        raise kind(f"{what}: the remote fails", _why(error)) from None


def _s3(url: RemoteUrl, options: ClientConfig) -> Client:
    named: Any = {name: url.options[name] for name in ("endpoint", "region") if name in url.options}
    return S3Store(
        url.host, prefix=url.path or None, client_options=options, retry_config=_ONCE, **named
    )


def _gs(url: RemoteUrl, options: ClientConfig) -> Client:
    return GCSStore(url.host, prefix=url.path or None, client_options=options, retry_config=_ONCE)


def _az(url: RemoteUrl, options: ClientConfig) -> Client:
    named: Any = {"account_name": url.options["account"]} if "account" in url.options else {}
    return AzureStore(
        url.host, prefix=url.path or None, client_options=options, retry_config=_ONCE, **named
    )


_MAKERS: Mapping[str, Callable[[RemoteUrl, ClientConfig], Client]] = {
    "s3": _s3,
    "gs": _gs,
    "az": _az,
}


def _status(error: Exception) -> int:
    found = _STATUS.search(str(error))
    return int(found[1] or found[2]) if found else 0


def _why(error: Exception) -> str:
    status, code = _status(error), _CODE.search(str(error))
    if status:
        return f"status {status}" + (f", {code[1]}" if code else "")
    return "nothing came in time" if "TimedOut" in str(error) else scrubbed(_first_line(error), 160)


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]


def _certificates(path: str) -> str:
    try:
        found = read_named(Path(path), MOST_CERTIFICATES)
        if len(found) > MOST_CERTIFICATES:
            raise ValueError(f"it has more than {MOST_CERTIFICATES >> 20} MiB")
        return found.decode("ascii")
    except (OSError, ValueError) as error:
        raise UsageError(f"the certificates in {path} cannot be read", str(error)) from error
