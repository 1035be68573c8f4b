"""HTTP with bounds: hosts, bodies, waits and what is shown of failures."""

from __future__ import annotations

import http.server
import logging
from email.utils import formatdate
from time import time

import pytest
import requests
from support.servers import serving

from vcc.cache.errors import RemoteError
from vcc.cache.remote.base import Absent, Denied, Passing
from vcc.cache.remote.http import (
    Elsewhere,
    Session,
    announced,
    answer,
    check,
    read_body,
    retry_after,
    small_body,
)
from vcc.cache.remote.patience import Limits

CANARY = "canary-9d2e"
LIMITS = Limits(connect_s=1, idle_s=1)


class Server(http.server.BaseHTTPRequestHandler):
    """Answers with the status and headers that its path names."""

    def do_GET(self):
        self.seen.append((self.path, dict(self.headers)))
        status, _, place = self.path.partition("?")[0].strip("/").partition("/")
        self.send_response(int(status))
        if place:
            self.send_header("Location", f"http://{place}" if "." in place else f"/{place}")
        self.end_headers()
        self.wfile.write(f'<Code>SomeCode</Code>{CANARY}{{"code":"X"}}'.encode())

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    kind = type("Bound", (Server,), {"seen": []})
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    web.seen = kind.seen
    with serving(web):
        yield web


def home(server):
    return f"http://127.0.0.1:{server.server_port}"


def session(server, *hosts):
    return Session(frozenset(hosts), home(server), LIMITS)


def get(server, path, *hosts):
    with answer(session(server, *hosts), "GET", f"{home(server)}{path}", "reading") as response:
        check(response, "reading", (200,))
        return small_body(response, "reading", 1000)


def test_a_redirect_on_the_same_host_is_followed(server):
    assert get(server, "/302/200").startswith(b"<Code>")


@pytest.mark.parametrize(
    "place",
    ["169.254.169.254/latest/meta-data", "127.0.0.2:1/x", "127.0.0.1:1/x", "evil.example.com/x"],
)
def test_a_redirect_to_another_host_or_port_is_refused_before_it_is_asked(server, place):
    with pytest.raises(Elsewhere):
        get(server, f"/302/{place}")
    assert len(server.seen) == 1


def test_a_host_that_the_user_named_may_be_led_to_but_only_encrypted(server):
    with pytest.raises(Elsewhere):
        get(server, "/302/127.0.0.2:1/x", "127.0.0.2")
    with pytest.raises(Passing):  # it may be asked: nobody listens there
        _ask(server)


def _ask(server):
    with answer(session(server, "127.0.0.2"), "GET", "https://127.0.0.2:1/x", "reading"):
        raise AssertionError("nobody listens there")


def test_redirects_in_a_circle_end(server):
    with pytest.raises(Elsewhere, match="place to place"):
        get(server, "/302/302/302/302/302/302/200")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, Absent), (410, Absent), (401, Denied), (403, Denied), (429, Passing), (500, Passing),
     (503, Passing), (400, RemoteError), (418, RemoteError)],
)  # fmt: skip
def test_a_status_has_a_meaning_and_shows_its_code_alone(server, status, kind):
    with pytest.raises(kind) as caught:
        get(server, f"/{status}")
    assert f"status {status}, SomeCode" in caught.value.why
    assert CANARY not in str(caught.value.as_dict())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0.0), ("120", 120.0), ("", None), ("soon", None), ("-1", None), ("9" * 30, None),
     ("²", None),     ("Mon, 99 Foo 2026", None), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0)],
)  # fmt: skip
def test_retry_after_is_seconds_or_nothing(text, seconds):
    assert retry_after({"Retry-After": text}) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("17", 17),
        ("", None),
        ("-1", None),
        ("²", None),
        ("9" * 5000, None),
        ("1_0", None),
    ],
)
def test_a_length_is_a_number_or_nothing(text, size):
    assert announced({"Content-Length": text}) == size


def test_retry_after_may_be_a_date():
    found = retry_after({"Retry-After": formatdate(time() + 60, usegmt=True)})
    assert 55 < found < 65


def test_a_body_is_cut_at_its_limit(server):
    parts = []
    with (
        answer(session(server), "GET", f"{home(server)}/200", "reading") as response,
        pytest.raises(RemoteError, match="10 bytes belong there"),
    ):
        read_body(response, parts.append, "reading", limit=10)
    assert sum(map(len, parts)) <= 10


def test_the_beginning_of_a_body_can_be_left_out(server):
    parts = []
    with answer(session(server), "GET", f"{home(server)}/200", "reading") as response:
        read_body(response, parts.append, "reading", limit=1000, skip=6)
    assert b"".join(parts).startswith(b"SomeCode")


def test_a_password_of_the_users_netrc_is_not_sent(server, tmp_path, monkeypatch):
    (tmp_path / ".netrc").write_text(f"machine 127.0.0.1 login me password {CANARY}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    assert requests.utils.get_netrc_auth(home(server)) is not None
    get(server, "/200")
    assert "Authorization" not in server.seen[0][1]


def test_debug_logs_of_the_client_have_no_query(server, caplog):
    caplog.set_level(logging.DEBUG)
    with answer(session(server), "GET", f"{home(server)}/200?sig={CANARY}", "reading"):
        pass
    assert any("urllib3" in one.name for one in caplog.records)
    assert CANARY not in caplog.text


def test_nobody_who_listens_is_a_passing_failure():
    here = Session(frozenset(), "http://127.0.0.1:1", LIMITS)
    with (
        pytest.raises(Passing, match="connection failed"),
        answer(here, "GET", f"http://127.0.0.1:1/?{CANARY}", "reading"),
    ):
        pass
