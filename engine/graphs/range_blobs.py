"""Blobs that are each for a range of sizes (`program/9-32`, `table/step/16-16`): names, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from vcc.cache.errors import IntegrityError
from vcc.cache.manifest import Manifest

_SIZES = re.compile(r"([1-9][0-9]{0,9})-([1-9][0-9]{0,9})")
"""One spelling for each range, so that two blobs cannot mean the same."""

_HINT = "rebuild it: vcc compile"

Range = tuple[int, int]
"""Smallest and largest size, both included."""


def range_blobs(manifest: Manifest, stem: str, what: str) -> dict[str, Range]:
    """The blobs `STEM/LOW-HIGH` of an artifact with their ranges; none where one serves all.

    Args:
        manifest: of the artifact.
        stem: name of the blob that serves every size.
        what: what such a blob is, for errors.

    Returns:
        Ranges by blob name, ascending, then exact sizes.

    Raises:
        IntegrityError: a name is no range, the manifest lists other ranges, two of them overlap, or
            a size between the smallest and the largest has none.
    """
    names = [name for name in manifest.blobs if name.startswith(f"{stem}/")]
    found = {name: _parsed(name, stem) for name in names}
    if not found:
        return {}
    if stem in manifest.blobs:
        raise IntegrityError(
            f"the artifact has a {what} for every size, and one for {names[0]:.60}"
        )
    _check_listed(manifest, found, what)
    exact = exact_sizes(list(found.values()))
    check_whole([one for one in found.values() if one not in exact], what)
    return dict(sorted(found.items(), key=lambda item: (item[1] in exact, item[1])))


def _parsed(name: str, stem: str) -> Range:
    match = _SIZES.fullmatch(name.removeprefix(f"{stem}/"))
    low, high = map(int, match.groups()) if match else (1, 0)
    if low > high:
        raise IntegrityError(f"blob {name[:60]} names no range of sizes")
    return low, high


def _check_listed(manifest: Manifest, found: Mapping[str, Range], what: str) -> None:
    listed = manifest.info.get("ranges")
    rows = listed if isinstance(listed, list) else []
    said = {str(one.get("sizes")) for one in rows if isinstance(one, dict)}
    here = {f"{low}-{high}" for low, high in found.values()}
    for name in sorted(said ^ here):
        has = "it lists that range" if name in said else "it does not list that range"
        raise IntegrityError(
            f"the artifact's {what}s are not those of its manifest: {name[:40]}", has, _HINT
        )


def exact_sizes(ranges: Sequence[Range]) -> frozenset[Range]:
    """Those that are for one size, which another range holds too."""
    wide = [one for one in ranges if one[0] < one[1]]
    return frozenset(
        one
        for one in ranges
        if one[0] == one[1] and any(low <= one[0] <= high for low, high in wide)
    )


def check_whole(ranges: Sequence[Range], what: str) -> None:
    """Refuse ranges that overlap or leave a size without.

    Raises:
        IntegrityError: with the sizes.
    """
    for (_, end), (start, high) in pairwise(sorted(ranges)):
        if start > end + 1:
            raise IntegrityError(
                f"the artifact has no {what} for sizes {end + 1} to {start - 1}",
                "its ranges leave a gap",
                _HINT,
            )
        if start <= end:
            raise IntegrityError(
                f"the artifact has two {what}s for sizes {start} to {min(end, high)}",
                "its ranges overlap",
                _HINT,
            )
