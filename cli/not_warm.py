"""--require-warm: a boot that is not warm ends, with the explanation of `vcc explain`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vcc.cache.errors import MissingArtifact, VccError

if TYPE_CHECKING:
    from vcc.engine.session import Session


class NotWarm(MissingArtifact):
    """No artifact answers, and nothing may be built.

    Args:
        missing: the error of the look-up.
        explanation: as `vcc explain --json` has it.
    """

    def __init__(self, missing: MissingArtifact, explanation: Mapping[str, object]) -> None:
        super().__init__(missing.what, missing.why, missing.hint)
        self.explanation = dict(explanation)

    def as_dict(self) -> dict[str, object]:
        """With the explanation."""
        return {**super().as_dict(), "explanation": self.explanation}


def explained(session: Session, missing: MissingArtifact, *, as_json: bool) -> MissingArtifact:
    """The error of a look-up; with --require-warm with why nothing that is there answers."""
    found = _explanation(session, as_json=as_json) if session.require_warm else None
    return missing if found is None else NotWarm(missing, found)


def _explanation(session: Session, *, as_json: bool) -> Mapping[str, object] | None:
    from vcc.cli.console import err
    from vcc.cli.explain import explanation_dict, explanation_text
    from vcc.engine.explain import explain

    try:
        found = explain(session.settled, session.store)
    except VccError:  # the error of the look-up says enough
        return None
    if not as_json:
        err(explanation_text(found))
    return explanation_dict(found)
