"""Why a model cannot be traced, with the line of its source and what to do about it."""

from __future__ import annotations

import linecache
import re
import sysconfig
import traceback
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from vcc.cache.errors import CompileError
from vcc.engine.torch_shim.fake import needs_data, operator_without_fake

TRAILER = "\n\nThe error above occurred"
"""How torch.export ends every error."""

_ENGINE = Path(__file__).resolve().parents[1]
_LIBRARY = Path(sysconfig.get_path("stdlib"))
_TORCH = Path(getattr(find_spec("torch"), "origin", None) or "torch").parent
_ADVICE = ("For more", "For extended logs", "For C++ stack", "If you suspect the guard")

DATA = "remove the data-dependent branch it names, or run eagerly with --compile none"
KINDS: tuple[tuple[str, str], ...] = (
    (r"data-dependent", DATA),
    (
        r"missing a required|unexpected keyword|positional argument",
        "declare each argument of forward that has no default, by its name: --shape NAME=...",
    ),
    (
        r"same device|different devices|on the meta device",
        "make it where an input is, as by torch.zeros(4, device=x.device), or keep it as a buffer",
    ),
    (
        r"in output, which is not a known type|[Uu]nsupported output",
        "return tensors, or tuples, lists and dicts of tensors",
    ),
    (
        r"\.numpy\(\)|NumPy|as a numpy",
        "compute it with torch: while it is traced, a tensor has a shape and no values",
    ),
    (
        r"[Ss]calar type|dtype|data type",
        "convert one of them in that line, or declare the input's own type: --shape ids=4x16:int64",
    ),
    (
        r"[Ss]ize|[Ss]hape|\bdims?\b|[Dd]imension|channel|broadcast|out of bounds|elements|indices",
        "declare shapes that the model takes (--shape), or mend the line where they do not fit",
    ),
)
"""What torch's words are about, and what helps: the first that is found in them counts."""

OWN = "the model itself raises it: call it in Python on inputs of the declared shapes to see why"
OTHER = "change what it names, or run eagerly with --compile none"


def cannot_trace(error: Exception) -> CompileError:
    """The error of a trace for the one who wrote the model."""
    line = line_of_model(error)
    at = f", at {line}" if line else ""
    operator = operator_without_fake(error)
    if operator:
        return CompileError(
            f"the operator {operator} has no fake implementation",
            f"tracing needs the shape and dtype of its result without its data{at}",
            f'register one: @torch.library.register_fake("{operator}")',
        )
    text = _told(str(error).partition(TRAILER)[0]) or type(error).__name__
    why = f"{line}\n{text[:2000]}" if line else text[:2000]
    return CompileError("the model cannot be traced into one graph", why, _hint(error, text))


def narrowing_hint(found: str) -> str:
    """What helps where a trace found other sizes than were declared, in torch's words."""
    same = re.search(r"values of (\w+) = .+ and (\w+) = .+ must always be equal", found)
    if same is None:
        return "a branch or an index in the model depends on a size; make it hold for all sizes"
    return (
        f"{same[1]} and {same[2]} are one size for the model: give both dimensions one name, "
        "as S in --shape a=8xS@1-64 --shape b=8xS@1-64"
    )


def _hint(error: Exception, text: str) -> str:
    """What helps against an error with these words, torch's or the model's own."""
    if needs_data(error):
        return DATA
    if _by_model(error):
        return OWN
    return next((hint for words, hint in KINDS if re.search(words, text)), OTHER)


def _by_model(error: Exception) -> bool:
    """Whether the model's own code raised an error, and not something that it called."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return _of_model(frame) or isinstance(error, (AttributeError, AssertionError, KeyError))


def _told(text: str) -> str:
    """Torch's words without its advice on how to look at torch."""
    lines = (line for line in text.strip().splitlines() if not line.startswith(_ADVICE))
    return "\n".join(lines).strip()


def line_of_model(error: BaseException) -> str:
    """Where in the model's own source an error arose: `net.py:12: if x.sum() > 0:`; or empty."""
    frames = list(traceback.walk_tb(error.__traceback__))
    own = [(frame, line) for frame, line in frames if _of_model(frame)]
    if not own:
        return ""
    frame, line = own[-1]
    file = frame.f_code.co_filename
    return f"{Path(file).name}:{line}: {linecache.getline(file, line).strip()}"


def _of_model(frame: FrameType) -> bool:
    """Code of neither torch, this package nor Python itself."""
    file = Path(frame.f_code.co_filename)
    python = _LIBRARY in file.parents and "site-packages" not in file.parts
    others = any(place in file.parents for place in (_TORCH, _ENGINE))
    return file.is_file() and not python and not others
