"""Other accounts: forked children that are members of one group."""

from __future__ import annotations

import os
from collections.abc import Callable

from support.stores import child, exit_of

GROUP, ANN, BEN = 54321, 54322, 54323


def as_account(uid: int, work: Callable[[], object], own_group: int | None = None) -> int:
    """Run `work` as a member of `GROUP`, whose primary group is another one; the exit status."""

    def joined() -> None:
        os.setgroups([GROUP])
        os.setgid(own_group or uid)
        os.setuid(uid)
        os.environ["VCC_TRUST_DIR"] = "/nonexistent/trust"
        work()

    return exit_of(child(joined))
