"""What a child's failure means when its parent has used CUDA, which no fork can use again."""

from __future__ import annotations

from vcc.cache.errors import DeviceError, VccError, quoted

SIGNS = (
    *("CUDA error: initialization error", "[CUDA]: initialization error"),
    *("re-initialize CUDA", "cuInit answers 3"),
)
"""Of the runtime, as torch and Triton quote it, of torch and of the driver, in a child of a process
that has used CUDA."""


def failure(error: BaseException, otherwise: type[VccError], what: str) -> VccError:
    """The error of a child as one of vcc's.

    Args:
        error: what was raised there.
        otherwise: kind of the result where CUDA is not to blame.
        what: what failed, in words, for the same case.

    Returns:
        A DeviceError where the text is one of SIGNS, else one of `otherwise`.
    """
    text = quoted(error)
    if not any(sign in text for sign in SIGNS):
        return otherwise(what, text)
    return DeviceError(
        "a build for a GPU cannot begin in this process",
        "it has used CUDA already, and a child of it cannot",
        "build before CUDA is used, or by itself: vcc compile",
    )
