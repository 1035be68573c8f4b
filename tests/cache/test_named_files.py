"""Files that somebody names: no pipe is waited for, nothing endless is read to its end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vcc.cache.errors import ModelError, VccError
from vcc.cache.named_files import open_named, read_named
from vcc.cache.pack.read import PackReader
from vcc.cache.remote.clients import _certificates
from vcc.cache.trust.publickey import read_public_key
from vcc.cache.trust.secretkey import load_secret, passphrase
from vcc.cli import prompts
from vcc.cli.import_pack import reading
from vcc.cli.prompts import MOST, read_prompts
from vcc.engine.guest.command import _digest
from vcc.engine.models.json_file import read_json
from vcc.engine.models.mapped_file import _map
from vcc.engine.models.safetensors_header import read_header
from vcc.engine.prewarm.file import read_file
from vcc.engine.runtime.batch_trace import read_trace
from vcc.engine.runtime.tokenizer import _settings
from vcc.engine.torch_shim.profiles import read_profile


def _first_of_pack(file: Path) -> object:
    with reading(str(file)) as stream:
        return PackReader.open(stream)


READERS: dict[str, Callable[[Path], object]] = {
    "prewarm": read_file,
    "profile": read_profile,
    "prompts": lambda file: read_prompts((), file),
    "batches": lambda file: [*read_trace(file)],
    "public key": lambda file: read_public_key(str(file)),
    "private key": lambda file: load_secret(file, None),
    "passphrase": passphrase,
    "pack": _first_of_pack,
    "certificates": lambda file: _certificates(str(file)),
}
"""What may be a pipe, of a shell's `<(command)`."""

REGULAR: dict[str, Callable[[Path], object]] = {
    "a model's JSON": read_json,
    "a header of weights": read_header,
    "weights": lambda file: _map(file),
    "a tokenizer's settings": _settings,
}
"""What is read more than once, or in pieces."""


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    """A reader that waits fails instead of holding up the suite."""

    def late(*_: object) -> None:
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_without_a_writer_is_as_good_as_an_empty_file(fifo: Path, reader: str) -> None:
    empty = fifo.with_name("empty")
    empty.touch(0o600)
    said = [_said(lambda file=file: READERS[reader](file)) for file in (fifo, empty)]
    assert said[0].replace("fifo", "empty") == said[1]


def _said(call: Callable[[], object]) -> str:
    try:
        return repr(call())
    except VccError as error:
        return f"{error} {error.hint}"


@pytest.mark.parametrize("reader", READERS)
def test_a_folder_and_an_endless_file_are_refused(tmp_path: Path, reader: str) -> None:
    for file in (tmp_path, Path("/dev/zero")):
        with pytest.raises(VccError):
            READERS[reader](file)


def test_more_prompts_than_fit_are_refused_by_their_size(tmp_path: Path) -> None:
    with (tmp_path / "prompts").open("wb") as stream:
        stream.truncate(MOST + 1)
    with pytest.raises(VccError, match="256 MiB"):
        read_prompts((), tmp_path / "prompts")


def test_the_size_of_prompts_is_one_of_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what is behind the bound would be left out, where characters have several bytes."""
    monkeypatch.setattr(prompts, "MOST", 6)
    file = tmp_path / "prompts"
    file.write_text("éééab", encoding="utf-8")
    with pytest.raises(VccError, match="more than"):
        read_prompts((), file)
    file.write_text("ééé", encoding="utf-8")
    assert [one.text for one in read_prompts((), file)] == ["ééé"]


def test_what_a_shell_substitutes_is_read_to_its_end(tmp_path: Path) -> None:
    reading, writing = os.pipe()

    def write() -> None:
        for _ in range(4):
            os.write(writing, b"x" * 50_000)
        os.close(writing)

    thread = threading.Thread(target=write)
    thread.start()
    assert len(read_named(Path(f"/dev/fd/{reading}"), 1 << 20)) == 200_000
    thread.join()
    os.close(reading)


@pytest.mark.parametrize("reader", REGULAR)
def test_files_of_a_model_are_regular_ones(fifo: Path, reader: str) -> None:
    with pytest.raises(OSError, match="no regular file"):
        open_named(fifo, pipes=False)
    for file in (fifo, Path("/dev/zero")):
        with pytest.raises(ModelError, match="no regular file"):
            REGULAR[reader](file)


def test_the_script_of_a_guest_is_left_for_the_guest(fifo: Path) -> None:
    assert _digest(fifo) == "none"
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    words = f"{sys.executable} -m vcc.cli.main run -- {sys.executable} <(echo 'print(6 * 7)')"
    environment = {**os.environ, "VCC_CACHE_DIR": str(fifo.with_name("store"))}
    done = subprocess.run([bash, "-c", words], env=environment, capture_output=True, text=True)
    assert done.stdout == "42\n", done.stderr
