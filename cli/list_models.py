"""vcc compile --list-models: the architectures that are built in."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import typer

from vcc.cache.extras import install
from vcc.cli.console import out, out_json

if TYPE_CHECKING:
    from vcc.engine.models.listing import Listed

OTHERS = f"""other decoders, encoders and vision models
  traced from the model that transformers has of them: {install("transformers")}"""

WIDTH = 96
"""Columns that the lines of an architecture are folded at."""


def list_models(context: typer.Context, wanted: bool) -> None:
    """Print the table and end the command, before it asks for a model.

    Args:
        context: of the command; `--json` is read already.
        wanted: the option was given.
    """
    if not wanted:
        return
    from vcc.engine.models.listing import refused_by_name, supported

    if context.params.get("json"):
        out_json({"models": [one.as_dict() for one in supported()], "refused": refused_by_name()})
    else:
        out("\n".join(_text(one) for one in supported()))
        out(f"\n{OTHERS}")
        out("\nrefused by name")
        out("\n".join(f"  {name}: {why}" for name, why in refused_by_name().items()))
    raise typer.Exit


def _text(one: Listed) -> str:
    lines = (
        ("", one.about),
        ("pieces", str(one.pieces)),
        ("passes", ", ".join(one.passes) or "none"),
        ("dtypes", one.dtypes),
        ("refused", ", ".join(one.refused)),
    )
    return "\n".join([one.architecture, *(_folded(head, text) for head, text in lines)])


def _folded(head: str, text: str) -> str:
    start = f"  {head:9}" if head else "  "
    return textwrap.fill(text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start))
