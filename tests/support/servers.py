"""Servers for the tests of remotes: S3 by moto, OCI by docker-registry, each on a free port."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_S = 60.0
KEY, SECRET = "AKIATESTKEY", "canary-aws-secret-7f3a"
AWS = {
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_REGION": "us-east-1",
}


def free_port() -> int:
    """A port on loopback that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def s3_server(log: Path) -> Iterator[str]:
    """moto's S3 at the URL that is given, with a bucket `cache`."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    url = f"http://127.0.0.1:{port}"
    with started(command, f"{url}/moto-api/", log):
        request = urllib.request.Request(f"{url}/cache", method="PUT")
        urllib.request.urlopen(request, timeout=10).close()
        yield url


@contextmanager
def registry(folder: Path, *, password: str = "") -> Iterator[str]:
    """docker-registry with its data in `folder`; gives host and port.

    Args:
        password: of the user `user`, in bcrypt; empty: everyone may push.
    """
    port = free_port()
    config: dict[str, object] = {
        "version": "0.1",
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    if password:
        (folder / "htpasswd").write_text(f"user:{password}\n")
        auth = {"realm": "test", "path": str(folder / "htpasswd")}
        config["auth"] = {"htpasswd": auth}
    (folder / "config.json").write_text(json.dumps(config))  # YAML reads JSON
    command = [registry_program(), "serve", str(folder / "config.json")]
    with started(command, f"http://127.0.0.1:{port}/v2/", folder / "log"):
        yield f"127.0.0.1:{port}"


def registry_program() -> str:
    """Path of docker-registry; installed by apt where this account may.

    Raises:
        LookupError: it is not there, with the reason.
    """
    found = shutil.which("docker-registry")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        _install("docker-registry")
        found = shutil.which("docker-registry")
    if found is None:
        raise LookupError("docker-registry is not installed (apt-get install docker-registry)")
    return found


def _install(package: str) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    quiet = {"env": env, "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    for words in (("update", "-qq"), ("install", "-y", "-qq", "--no-install-recommends", package)):
        subprocess.run(  # a machine without a mirror is one without the package
            ["apt-get", *words], check=False, timeout=180, stderr=subprocess.DEVNULL, **quiet
        )


@contextmanager
def started(command: list[str], health: str, log: Path) -> Iterator[None]:
    """Run a server until the block ends; it answers at `health` when the block begins."""
    # It ends with the tests also when they are killed.
    tied = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
    with log.open("wb") as out:
        server = subprocess.Popen(
            [*tied, *command], stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        _wait(server, health, log)
        yield
    finally:
        server.terminate()
        try:
            server.wait(5)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait(server: subprocess.Popen[bytes], health: str, log: Path) -> None:
    ends = time.monotonic() + START_S
    while time.monotonic() < ends and server.poll() is None:
        try:
            urllib.request.urlopen(health, timeout=1).close()
            return
        except urllib.error.HTTPError:
            return  # it wants a password, and lives
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"the server did not start: {log.read_text()[-2000:]}")


@contextmanager
def serving(server: socket.socket | object) -> Iterator[None]:
    """Serve an `http.server` in a thread while the block lasts."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)  # type: ignore[union-attr]
    thread.start()
    try:
        yield
    finally:
        server.shutdown()  # type: ignore[union-attr]
        server.server_close()  # type: ignore[union-attr]
        thread.join()
