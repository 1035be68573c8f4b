"""No credential is ever shown: not in errors, logs, notes, marks, JSON, nor by a server's echo."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest
from support import chaos_proxy as spoils
from support.remotes import pull_one, push_all
from support.servers import KEY, SECRET

from vcc.cache.errors import VccError

TOKEN = "canary-session-token-51ab"
PASSWORD = "canary-password-83cd"
CANARIES = (SECRET, TOKEN, PASSWORD)


def repeating(code):
    """An error whose body and headers repeat everything that was sent."""

    def spoil(handler, answer):
        text = f"{handler.path} {dict(handler.headers)} {SECRET} {TOKEN} {PASSWORD}"
        body = f"<Error><Code>Bad</Code><Message>{text}</Message></Error>".encode()
        handler.send_response(code, f"Bad {PASSWORD}")
        handler.send_header("X-Repeat", SECRET)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return spoil


def with_password(networked, url):
    return url.replace("oci://", f"oci://me:{PASSWORD}@") if networked.name == "oci" else url


@pytest.mark.parametrize("code", [400, 401, 403, 404, 418, 500, 503])
@pytest.mark.parametrize("act", ["push", "pull"])
def test_errors_and_logs_show_no_credential(
    networked, source, target, code, act, monkeypatch, caplog, capfd
):
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    caplog.set_level(logging.DEBUG)
    (entry,) = source.entries()
    with networked.spoilt() as (url, proxy):
        url = with_password(networked, url)
        push_all(source, url)
        proxy.spoil = repeating(code)
        with pytest.raises(VccError) as caught:
            push_all(source, url, verify=True) if act == "push" else pull_one(target, url, entry)
    said = [str(caught.value.as_dict()), repr(caught.value), caplog.text, *capfd.readouterr()]
    for text in said:
        assert not [canary for canary in CANARIES if canary in text]
    assert KEY not in said[0]


def test_nothing_of_a_url_is_kept_in_the_store(networked, source, target, monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    (entry,) = source.entries()
    with networked.spoilt() as (url, _):
        push_all(source, with_password(networked, url))
        pull_one(target, with_password(networked, url), entry)
    files = [one for one in target.root.rglob("*") if one.is_file()]
    assert len(files) > 5
    for one in files:
        assert not [c for c in (*CANARIES, KEY) if c.encode() in one.read_bytes()]


@pytest.mark.parametrize("words", [("push", "--all", "--to"), ("pull", "--all", "--from")])
def test_commands_print_no_credential(networked, source, words):
    """Whole processes at debug level, with all that they print."""
    with networked.spoilt() as (url, proxy):
        url = with_password(networked, url)
        env = {**os.environ, "AWS_SESSION_TOKEN": TOKEN, "VCC_LOG_LEVEL": "debug"}
        env["VCC_CACHE_DIR"] = str(source.root)
        printed = ""
        for spoil, json in (
            (None, ("--json",)),
            (repeating(403), ()),
            (spoils.status(302, Location=f"http://h/{SECRET}"), ("--json",)),
        ):
            proxy.spoil = spoil
            done = subprocess.run(
                [sys.executable, "-m", "vcc.cli.main", *words, url, *json],
                env=env, capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            assert "Traceback" not in done.stderr
            printed += done.stdout + done.stderr
    assert len(printed) > 200
    assert not [canary for canary in CANARIES if canary in printed]
    assert "X-Amz-Signature" not in printed
