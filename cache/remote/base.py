"""What a remote can do, and how it may fail.

A remote holds the layout of a store under a URL: `v1/cas/sha256/..`, `v1/refs/<base>/<artifact>`,
`v1/signatures/<artifact>/<key>`. It is trusted with nothing: who reads verifies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from vcc.cache.digest import Digest
from vcc.cache.errors import MissingArtifact, RemoteError

Sink = Callable[[bytes], None]
"""Takes the next bytes of a body."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob by digest and size in bytes, such as a ref keeps alive on its remote."""

    digest: Digest
    size: int


class Remote(Protocol):
    """A place with the layout of a store. One method is one attempt: `patience.py` tries again.

    Every method raises RemoteError: `Passing` where another attempt can help, `Denied` where the
    remote refuses us, `Absent` where it does not have the path, else final.

    Attributes:
        url: for people and for records; without credentials.
        public: whether a host of the open internet answers there.
        is_registry: whether it is a registry of artifacts that others may pull from.
    """

    @property
    def url(self) -> str:
        """See the class."""

    @property
    def public(self) -> bool:
        """See the class."""

    @property
    def is_registry(self) -> bool:
        """See the class."""

    def size(self, path: str) -> int | None:
        """Bytes of what lies at `path`; None where nothing does."""

    def get(self, path: str, sink: Sink, *, limit: int, start: int = 0) -> None:
        """Give the bytes at `path` from byte `start` on to `sink`, in order.

        Args:
            limit: bytes that the whole may have; a longer body is cut off and is an error.
        """

    def put(
        self, path: str, data: bytes, *, replace: bool = False, keeps: Sequence[Blob] = ()
    ) -> bool:
        """Store `data` at `path`, whole or not at all; False where something lies there already.

        Args:
            replace: store it there all the same (what lies there is known to be wrong).
            keeps: blobs that must stay as long as this path does; a registry needs to know.
        """

    def paths(self, prefix: str) -> Iterator[str]:
        """The paths below `prefix`, which ends in a slash, page by page; in no order."""

    def close(self) -> None:
        """Give connections back."""


class Passing(RemoteError):
    """A failure that another attempt may not meet: a busy or broken server, a cut connection.

    Args:
        what, why, hint: as in every error.
        after: seconds that the server asks to wait; None where it does not say.
    """

    def __init__(self, what: str, why: str = "", hint: str = "", after: float | None = None):
        super().__init__(what, why, hint)
        self.after = after


class Denied(RemoteError):
    """The remote knows us not, or grants us not this."""

    id = "REMOTE_DENIED"


class Absent(MissingArtifact):
    """The remote does not have what was asked for: a miss."""


class Offline(RemoteError):
    """VCC_OFFLINE forbids to ask a remote."""

    id = "OFFLINE"
