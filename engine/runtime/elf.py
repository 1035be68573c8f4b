"""What a stored library may ask of the system, checked before it is opened.

Opening a library runs code of whatever it names: libraries it needs, folders they are sought in,
functions that others must give. A piece needs torch's plain C interface, the C and C++ runtimes and
OpenMP, and nothing else. This bounds what a library can bring in by its headers. It does not bound
what its own code does: that is trusted with whoever built it (`docs/security.md`).
"""

from __future__ import annotations

import re
import struct

from vcc.cache.errors import IntegrityError
from vcc.engine.runtime.elf_read import read_asked

LIBRARIES = re.compile(
    r"(?:lib(?:torch|torch_cpu|c10)\.so"
    r"|lib(?:gomp|iomp5|omp|stdc\+\+|c\+\+|c\+\+abi|gcc_s|atomic|m|mvec|c|dl|pthread|rt)"
    r"(?:-[0-9a-f]+)?\.so(?:\.[0-9.]+)?"
    r"|ld-linux[-\w]*\.so\.\d+)\Z"
)
SYMBOLS = re.compile(
    r"aoti_torch_|torch_|Sleef_|GOMP_|omp_|__kmpc_|cu[A-Z]|cuda[A-Z]"  # plain C interfaces
    r"|_ITM_|__gmon_start__|__cxa_|__tls_get_addr|_Unwind_"  # the C and C++ runtimes, and
    r"|_Z(?:T[IVST])?(?:N[KVO]*)?S[tabsiod]|_Z(?:n[wa]|d[la])"  # namespace std, new and delete
)


class ElfPolicy(IntegrityError):
    """A stored library that asks for more than a piece may."""

    id = "ELF_POLICY"


def check_library(name: str, data: bytes) -> None:
    """Refuse a library that could make the loader run anything but itself.

    Args:
        name: for messages.
        data: its bytes, verified.

    Raises:
        ElfPolicy: with what it asks for.
    """
    try:
        asked = read_asked(data)
    except (struct.error, ValueError, IndexError) as error:
        raise _refused(name, f"its headers cannot be read ({error})") from error
    for tag in asked.tags:
        raise _refused(name, f"it has {tag}, which sends the loader elsewhere")
    for library in asked.needed:
        if not LIBRARIES.match(library):
            raise _refused(name, f"it needs {library[:80]!r}")
    for symbol in asked.symbols:
        if not SYMBOLS.match(symbol):
            raise _refused(name, f"it uses {symbol[:80]!r} of an unnamed library")


def _refused(name: str, why: str) -> ElfPolicy:
    return ElfPolicy(
        f"library {name} is not opened",
        why,
        "rebuild it: vcc compile; docs/security.md has the rule",
    )
