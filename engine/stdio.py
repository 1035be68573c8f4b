"""Requests as JSON lines in, answers as JSON lines out, all of them batched as they come.

    request = {"prompt": text | [id…], "id"?, "chat"?, "max_new_tokens"?, "temperature"?, "top_k"?,
               "top_p"?, "seed"?, "ignore_eos"?, "lora"?}
    answer  = {"id", "text": the next bit}…, then {"id", "finish_reason", "token_ids", "text": all,
               "not_finite": tokens that logits with NaN or infinity gave}
    refusal = {"line": number from 1, "id"?, "error": {"id", "exit", "what", "why", "hint"}}

`id` is any text or whole number and comes back; without one it is the number of the line.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import msgspec

from vcc.cache.errors import StorageError, UsageError, VccError
from vcc.engine.runtime.defaults import NOTHING_SAID, Overrides
from vcc.engine.serving import Part, Serving

LONGEST_LINE = 1 << 20
"""Bytes of a request; a longer line is refused and skipped."""

_AT_ONCE = 1 << 16

WAITING = 1024
"""Lines that are read ahead; who writes faster waits."""

Emit = Callable[[Mapping[str, object]], None]

_NUMBER: tuple[type, ...] = (int, float)
_FIELDS: Mapping[str, tuple[type, ...]] = {
    "prompt": (str, list),
    "id": (str, int),
    "chat": (bool,),
    "max_new_tokens": (int,),
    "temperature": _NUMBER,
    "top_k": (int,),
    "top_p": _NUMBER,
    "seed": (int,),
    "ignore_eos": (bool,),
    "lora": (str,),
}
_SAMPLING = ("max_new_tokens", "temperature", "top_k", "top_p", "seed", "ignore_eos")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of input: its number from 1, and its bytes; None for one that is too long."""

    number: int
    data: bytes | None


class Descriptor:
    """Lines of a file descriptor, whose buffer has no lock.

    A thread that waits in `sys.stdin.buffer` holds its lock, and Python aborts a process that ends
    meanwhile.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._held = descriptor, bytearray()

    def readline(self, most: int) -> bytes:
        """The next line with its end, or `most` bytes of it; nothing at the end of the input."""
        looked = 0
        while (end := self._held.find(b"\n", looked) + 1) == 0 and len(self._held) < most:
            looked = len(self._held)
            data = os.read(self._descriptor, _AT_ONCE)
            if not data:
                break
            self._held += data
        line = bytes(self._held[: min(end or len(self._held), most)])
        del self._held[: len(line)]
        return line


def read_lines(read: Callable[[int], bytes]) -> Iterator[Line]:
    """Lines of a stream whose `readline` is given, without those that are blank."""
    number = 0
    while data := read(LONGEST_LINE + 1):
        number += 1
        whole = len(data) <= LONGEST_LINE
        while not data.endswith(b"\n") and (more := read(LONGEST_LINE + 1)):
            data, whole = more, False
        if not whole:
            yield Line(number, None)
        elif data.strip():
            yield Line(number, data)


class Stdio:
    """Answers lines until they end, and what is under way then.

    Args:
        serving: a booted model.
        emit: takes every object of the output, in order.
        overrides: how to generate where a request does not say.
        chat: put texts into the chat template where a request does not say.
    """

    def __init__(
        self,
        serving: Serving,
        emit: Emit,
        overrides: Overrides = NOTHING_SAID,
        *,
        chat: bool = False,
    ) -> None:
        self._serving, self._emit = serving, emit
        self._overrides, self._chat = overrides, chat
        self._ids: dict[int, str | int] = {}

    def run(self, lines: Iterable[Line]) -> None:
        """Answer all lines; they are read by another thread, so that steps do not wait for them.

        Raises:
            StorageError: the input cannot be read any further; what came before is answered.
        """
        waiting: queue.Queue[Line | None] = queue.Queue(WAITING)
        failed: list[OSError] = []

        def read() -> None:
            try:
                for line in lines:
                    waiting.put(line)
            except OSError as error:
                failed.append(error)
            finally:
                waiting.put(None)

        threading.Thread(target=read, daemon=True, name="vcc-stdio").start()
        open_ = True
        while open_ or self._serving.busy:
            while open_ and (not self._serving.busy or not waiting.empty()):
                line = waiting.get()
                open_ = line is not None
                if line is not None:
                    self.take(line)
            for part in self._serving.step():
                self._told(part)
        if failed:
            raise StorageError(
                "cannot read standard input", str(failed[0].strerror), "check what it comes from"
            ) from failed[0]

    def take(self, line: Line) -> None:
        """Queue one request, or say why not."""
        said: dict[str, Any] = {}
        try:
            said = parse(line)
            number = self._serving.submit(
                said["prompt"],
                replace(self._overrides, **{k: said[k] for k in _SAMPLING if k in said}),
                chat=said.get("chat", self._chat),
                number=line.number - 1,
                lora=said.get("lora", ""),
            )
        except VccError as error:
            known = {"id": said["id"]} if "id" in said else {}
            self._emit({"line": line.number, **known, "error": error.as_dict()})
            return
        self._ids[number] = said.get("id", line.number)

    def _told(self, part: Part) -> None:
        name = self._ids[part.number]
        if part.error is not None:
            del self._ids[part.number]
            self._emit({"line": part.number + 1, "id": name, "error": part.error.as_dict()})
            return
        if part.text:
            self._emit({"id": name, "text": part.text})
        if part.answer is not None:
            del self._ids[part.number]
            whole = part.answer.as_dict()
            del whole["prompt"]
            self._emit({"id": name, **whole})


def parse(line: Line) -> dict[str, Any]:
    """The request of a line, its types checked.

    Raises:
        UsageError: the line is too long or no JSON object, or a field is unknown, missing or of
            another type.
    """
    if line.data is None:
        raise UsageError("the line is too long", f"a request has at most {LONGEST_LINE} bytes")
    try:
        found = msgspec.json.decode(line.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError("the line is not valid JSON", str(error)) from error
    if not isinstance(found, dict):
        raise UsageError("the line is no JSON object", hint='write {"prompt": "Once"}')
    for name, value in found.items():
        _check(name, value)
    if "prompt" not in found:
        raise UsageError("the request has no prompt", hint='write {"prompt": "Once"}')
    return found


def _check(name: str, value: object) -> None:
    kinds = _FIELDS.get(name)
    if kinds is None:
        near = get_close_matches(name, _FIELDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(_FIELDS)}"
        raise UsageError(f"the request has no field {name[:60]}", hint=hint)
    if type(value) not in kinds:
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise UsageError(f"{name} is {value!r:.60}", f"it must be {wanted}")
    if isinstance(value, list) and not all(type(one) is int for one in value):
        what = "prompt is a list of something else than token ids"
        raise UsageError(what, "ids are whole numbers", 'write {"prompt": [1, 2, 3]} or a text')
