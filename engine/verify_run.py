"""verify --run: call every piece of a stored artifact on its golden, where its code belongs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from vcc.cache.errors import Exit, IntegrityError, UsageError, VccError
from vcc.cache.loaded import Loaded
from vcc.engine.graphs.golden import Golden, WrongResult

GOLDEN = "golden/"
Check = Callable[[str, Golden], None]


class OutOfGolden(VccError):
    """Pieces compute something else here than where they were built."""

    exit, id = Exit.NEGATIVE, "GOLDEN"


@dataclass(frozen=True, slots=True)
class Ran:
    """Goldens that hold.

    Attributes:
        device: where the pieces ran.
        checked: ids of the pieces.
        without: why others have no golden, by id.
    """

    device: str
    checked: tuple[str, ...]
    without: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "device": self.device,
            "checked": list(self.checked),
            "without": dict(self.without),
        }


def run_goldens(loaded: Loaded) -> Ran:
    """Check all goldens of an artifact: on the device for GPU code, else on this CPU.

    Raises:
        OutOfGolden: pieces whose results differ; the first is named with its error.
        UsageError: an artifact that has no pieces.
        DeviceError: no device, or another one than the artifact is for.
        IntegrityError: a golden or the code cannot be read.
    """
    loader = loaded.manifest.host_rules.get("loader", "")
    if loader not in PLACES:
        raise UsageError(
            "there is nothing to run",
            f"an artifact of {loader or 'no loader'} has no pieces",
            "compile it: --mode full",
        )
    names = sorted(n.removeprefix(GOLDEN) for n in loaded.manifest.blobs if n.startswith(GOLDEN))
    if not names:
        return Ran("", (), _without(loaded, names))
    wrong: list[WrongResult] = []
    with PLACES[loader](loaded) as (device, check):
        for name in names:
            try:
                check(name, Golden.decode(loaded.read(GOLDEN + name)))
            except WrongResult as error:
                wrong.append(error)
    if wrong:
        first = wrong[0]
        count = f"{len(wrong)} of {len(names)} goldens do not hold; {first.why}"
        from vcc.engine.runtime.rebuild import rebuild_command  # for a refusal only

        target = loaded.manifest.host_rules.get("arch", "cpu")
        again = f"rebuild it: {rebuild_command(loaded.manifest, target)}"
        raise OutOfGolden(first.what, count, again)
    return Ran(device, tuple(names), _without(loaded, names))


@contextmanager
def _on_device(loaded: Loaded) -> Iterator[tuple[str, Check]]:
    from vcc.engine.arena import Arena
    from vcc.engine.graphs.blob_names import CUBIN
    from vcc.engine.runtime.player.device import open_device
    from vcc.engine.runtime.player.golden import check_golden
    from vcc.engine.runtime.player.handle import PlayerHandle
    from vcc.engine.runtime.player.opening import check_device
    from vcc.engine.runtime.player.tables import table_ranges

    device = open_device()
    check_device(device, loaded.manifest)
    first, *_ = table_ranges(loaded.manifest)
    with Arena(device.ordinal) as arena:
        handle = PlayerHandle(arena.handle, loaded.read(first))
        try:
            for name in loaded.manifest.blobs:
                if name.startswith(CUBIN):
                    handle.add_cubin(name.removeprefix(CUBIN), loaded.read(name))
            yield device.name, lambda piece, golden: check_golden(handle, piece, golden)
        finally:
            handle.close()


@contextmanager
def _on_cpu(loaded: Loaded) -> Iterator[tuple[str, Check]]:
    from vcc.engine.ops.register import load_ops
    from vcc.engine.runtime.golden import check_golden
    from vcc.engine.runtime.torch_loader import open_pieces

    load_ops()
    pieces = open_pieces(loaded)

    def check(piece: str, golden: Golden) -> None:
        if piece not in pieces:
            raise IntegrityError(f"piece {piece[:12]} is missing", "a golden names it")
        check_golden(piece, golden, pieces[piece])

    yield "this CPU", check


PLACES: Mapping[str, Callable[[Loaded], AbstractContextManager[tuple[str, Check]]]] = {
    "Player": _on_device,
    "TorchLoader": _on_cpu,
}
"""Where the pieces of each loader run."""


def _without(loaded: Loaded, names: Sequence[str]) -> dict[str, str]:
    """Why pieces have no golden: a GPU build says it by piece, a CPU build in the piece's notes."""
    said, pieces = (loaded.manifest.info.get(key) for key in ("goldens", "pieces"))
    found = {
        str(one.get("id")): "; ".join(map(str, one.get("notes", ())))
        for one in (pieces if isinstance(pieces, list) else ())
        if isinstance(one, dict) and one.get("id") not in names
    }
    known = said if isinstance(said, dict) else {}
    return found | {piece: why for piece, why in known.items() if isinstance(why, str)}
