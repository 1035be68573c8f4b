"""Processes by name: running, gone, or not to be seen from here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.stores import child, exit_of

from vcc.cache.process import Life, Process, own_name


def test_this_process_runs_and_its_name_says_whose_it_is():
    own = Process.own()
    assert own.life() is Life.RUNS
    assert Process.parse(own_name()) == own
    assert own.pid == os.getpid()
    assert len(own_name()) < 200


def test_a_name_is_used_once():
    assert len({own_name() for _ in range(100)}) == 100


def test_a_process_that_was_killed_is_gone_even_before_its_parent_looked():
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from vcc.cache.process import Process; print(Process.own());input()",
        ],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )
    named = Process.parse(process.stdout.readline().strip() + ".x")
    assert named.pid == process.pid
    assert named.life() is Life.RUNS
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
    assert named.life() is Life.GONE
    process.communicate()
    assert named.life() is Life.GONE


def test_a_pid_that_was_given_to_another_process_is_not_the_same_process():
    own = Process.own()
    assert replace(own, start=own.start + 1).life() is Life.GONE


def test_other_hosts_boots_and_namespaces_cannot_be_seen():
    own = Process.own()
    others = [
        replace(own, host="other"),
        replace(own, boot="0123"),
        replace(own, namespace=own.namespace + 1),
    ]
    assert [other.life() for other in others] == [Life.ELSEWHERE] * 3


def test_names_from_before_have_a_pid_alone():
    own = Process.own()
    old = Process.parse(f"{own.host}.{own.boot}.{own.pid}.0123")
    assert old == Process(own.host, own.boot, own.pid)
    assert old.life() is Life.RUNS


@pytest.mark.parametrize(
    "name",
    ["", "x", "a.b", "h.0f.1", "h.0f.-1.r", "h.0f.1-2.r", "h.0f.99999999999.r", "h/x.0f.1.r"],
)
def test_names_of_another_form_belong_to_nobody(name):
    assert Process.parse(name) is None


def test_a_pid_without_a_process_is_gone_whatever_its_number():
    own = Process.own()
    assert replace(own, pid=2**31 + 7, start=0).life() is Life.GONE
    pid = child(lambda: None)
    assert exit_of(pid) == 0
    assert replace(own, pid=pid, start=0).life() is Life.GONE


def test_where_proc_is_hidden_a_process_that_takes_signals_runs(monkeypatch):
    own = Process.own()
    monkeypatch.setattr(Path, "read_bytes", lambda path: (_ for _ in ()).throw(FileNotFoundError()))
    assert own.life() is Life.RUNS
    assert replace(own, pid=2**31 - 5).life() is Life.GONE
    assert replace(own, pid=0, start=0).life() is Life.GONE
