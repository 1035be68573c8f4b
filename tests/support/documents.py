"""The Markdown documents: their links, their console commands, their glossary words."""

from __future__ import annotations

import re
from pathlib import Path

from support.sources import ROOT

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def documents() -> tuple[Path, ...]:
    """README, changelog and everything under docs/."""
    return (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))


def commands(text: str) -> tuple[str, ...]:
    """Lines after a `$ ` prompt in any fenced block; a trailing backslash joins the next line."""
    blocks = (body.replace("\\\n", " ") for _, body in FENCE.findall(text))
    lines = (line.strip() for body in blocks for line in body.splitlines())
    return tuple(" ".join(line[2:].split()) for line in lines if line.startswith("$ "))


def sessions(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Each command of a text with the output lines that are shown below it."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for language, body in FENCE.findall(text):
        lines = body.replace("\\\n", " ").splitlines() if language == "console" else []
        for line in lines:
            if line.startswith("$ "):
                found.append((" ".join(line[2:].split()), ()))
            elif line.strip() and found:
                found[-1] = (found[-1][0], (*found[-1][1], line.strip()))
    return tuple(found)


def unsaid(shown: tuple[str, ...], said: str) -> list[str]:
    """Parts of the shown lines that were not printed; `…` stands for anything."""
    return [part for line in shown for part in line.split("…") if part not in said]


def links(text: str) -> tuple[str, ...]:
    """Targets of links that point into the repository, without their anchors."""
    bare = FENCE.sub("", text)
    targets = (target.split("#")[0] for target in LINK.findall(bare))
    return tuple(t for t in targets if t and not re.match(r"[a-z]+:", t))


def lost_anchors(page: Path) -> list[str]:
    """Links of a page to a heading that the page they name does not have."""
    bare = FENCE.sub("", page.read_text())
    pairs = [target.partition("#") for target in LINK.findall(bare) if ":" not in target]
    places = [(page.parent / name if name else page, mark) for name, _, mark in pairs if mark]
    return [f"{at.name}#{mark}" for at, mark in places if mark not in anchors(at.read_text())]


def anchors(text: str) -> set[str]:
    """The anchors of a text's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    bare = (re.sub(r"[^\w\- ]", "", title.strip().lower()) for title in titles)
    return {title.replace(" ", "-") for title in bare}


def glossary() -> dict[str, str]:
    """Word in lower case -> its sentence."""
    text = (ROOT / "docs" / "glossary.md").read_text()
    found = re.findall(r"^\*\*(.+?)\*\*: (.+?)(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return {word.lower(): sentence for word, sentence in found}
