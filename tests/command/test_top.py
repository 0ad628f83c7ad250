"""`top` shows the activity of processes that permit it, and says why other processes do not."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from helpers.interfaces.terminal import PATIENCE_S, Terminal
from helpers.repository.checkout import ROOT

import cudasync as cs
from cudasync.command import main
from cudasync.profile import remote_queries

# The process forks, because a child answers under its own number. It waits for its stdin to end.
HOLDS = """
import os, sys, threading
import cudasync as cs
cs.Engine
children = []
while len(children) < 2 and (child := os.fork()):
    children.append(child)
if child:
    from cudasync.testing import HostLatch
    latch, begun = HostLatch(), threading.Event()
    def hold():
        begun.set()
        latch.wait()
    engine = cs.Engine(workers=1)
    engine.push(hold, name="long")
    threading.Thread(target=engine.waitall, name="waits").start()
    begun.wait()
    print(*children, flush=True)
sys.stdin.read()
if child:
    latch.release()
    for each in children:
        os.waitpid(each, 0)
"""


def started(text, **environment):
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", text],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def asked():
    """The numbers of a process that permits questions, and of its two children."""
    process = started(HOLDS, CUDASYNC_TOP="1")
    pids = [process.pid, *map(int, process.stdout.readline().split())]
    yield pids
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    # None of them leaves anything behind.
    for pid in pids:
        with pytest.raises(cs.CudasyncError, match="there is no process"):
            remote_queries.ask(pid)
        assert f"cudasync-top-{os.getuid()}-{pid}" not in Path("/proc/net/unix").read_text()


def top(*words):
    return main(["top", *map(str, words)])


def test_once_it_prints_one_view(asked, capsys):
    assert top(asked[0], "--once", "--interval", 0.01) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"process {asked[0]}  ")
    assert "async engine: 1 ops in flight, 0 over; 0 host and 0 device ops/s" in printed
    assert "long #" in printed


def test_as_json_it_is_one_object(asked, capsys):
    assert top(asked[0], "--once", "--json", "--interval", 0.01) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["pid"] == asked[0]
    (engine,) = found["engines"]
    assert (engine["in_flight"], engine["host_ops_per_s"]) == (1, 0)
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        assert found["threads"] is None
        return
    # The thread may be about to wait.
    while "waits" not in [each["thread"] for each in found["threads"]]:
        found = remote_queries.ask(asked[0])


def test_a_forked_child_answers_for_itself(asked, capsys):
    assert remote_queries.ask(asked[1])["pid"] == asked[1]
    assert remote_queries.ask(asked[0])["pid"] == asked[0]


def test_on_a_terminal_it_is_drawn_until_ctrl_c(asked, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal.file)

    def interrupts():
        # This waits for the second drawing: the first has no rates.
        terminal.read_until("ops/s")
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=interrupts)
    thread.start()
    assert top(asked[0], "--interval", 0.01) == 0
    thread.join(PATIENCE_S)
    terminal.read_until(r"\x1b\[\?25h\x1b\[\?1049l$")
    assert terminal.seen.startswith("\x1b[?1049h\x1b[?25l\x1b[H")
    terminal.close()


def test_it_ends_with_the_process(asked, monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal.file)

    def kills():
        terminal.read_until("no engine is open")
        # SIGKILL leaves it no time to clear up.
        os.kill(asked[2], signal.SIGKILL)

    thread = threading.Thread(target=kills)
    thread.start()
    assert top(asked[2], "--interval", 0.01) == 0
    thread.join(PATIENCE_S)
    said = capsys.readouterr().err
    assert said.startswith(f"cudasync top: process {asked[2]} ")
    assert "ended" in said
    terminal.close()


def test_a_process_that_is_stopped_does_not_answer(asked, monkeypatch):
    monkeypatch.setattr(remote_queries, "PATIENCE_S", 0.1)
    os.kill(asked[0], signal.SIGSTOP)
    try:
        os.waitid(os.P_PID, asked[0], os.WSTOPPED)
        with pytest.raises(cs.CudasyncError, match="does not answer: it is stopped, or a call"):
            remote_queries.ask(asked[0])
    finally:
        os.kill(asked[0], signal.SIGCONT)


def test_who_was_not_started_for_it_is_not_asked(capsys):
    assert top(os.getpid()) == 2
    assert "start it with CUDASYNC_TOP=1 in its environment" in capsys.readouterr().err


def test_another_process_does_not_answer_in_its_place():
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as false:
        false.bind(remote_queries._name(os.getppid()))
        false.listen()
        with pytest.raises(cs.CudasyncError, match=f"another process, {os.getpid()} of user"):
            remote_queries.ask(os.getppid())


def test_a_name_that_is_taken_is_a_warning(monkeypatch):
    monkeypatch.setattr(remote_queries, "_ANSWERING", [])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as false:
        false.bind(remote_queries._name(os.getpid()))
        with pytest.warns(
            UserWarning, match=f"`cudasync top` cannot watch process {os.getpid()}: .*in use"
        ):
            remote_queries._begin()
    remote_queries._ANSWERING.pop().close()


def test_a_look_that_fails_is_told_and_the_next_is_answered(monkeypatch):
    monkeypatch.setattr(remote_queries, "look", lambda: 1 / 0)
    answer = json.loads(remote_queries._look_as_json())
    assert answer == {"error": "ZeroDivisionError('division by zero')"}


def test_without_the_variable_there_is_no_thread_and_another_value_is_refused(monkeypatch):
    remote_queries.answer()
    assert all(each.name != "cudasync top" for each in threading.enumerate())
    monkeypatch.setenv("CUDASYNC_TOP", "yes")
    with pytest.raises(ValueError, match="CUDASYNC_TOP=yes: set it to 1"):
        remote_queries.answer()


@pytest.mark.parametrize("word", ["0", "x", "nan", "1e9"])
def test_an_interval_is_a_time(word, capsys):
    with pytest.raises(SystemExit):
        top(1, "--interval", word)
    assert "is not a time from 0.01 to 86400 seconds" in capsys.readouterr().err
