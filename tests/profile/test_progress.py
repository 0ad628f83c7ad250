"""The progress line appears on a terminal while a program waits, and at no other place or time."""

from __future__ import annotations

import io
import signal
import threading

import pytest
from helpers.interfaces.terminal import PATIENCE_S, Terminal

import cudasync as cs
from cudasync.profile.progress import said
from cudasync.testing import HostLatch


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    yield terminal
    terminal.close()


def threads():
    return [each for each in threading.enumerate() if each.name == "cudasync progress"]


def test_a_terminal_has_the_line_while_the_block_lasts_and_nothing_after(terminal):
    latch = HostLatch()
    with cs.Engine(workers=1) as engine:
        with cs.progress(engine, file=terminal.file):
            engine.push(lambda: None).wait()
            engine.push(latch.wait)
            terminal.read_until(r"1 of 2 ops, 1 to go, \d+:\d\d")
            assert "1 of 2 ops" in terminal.line()
            latch.release()
            engine.waitall()
        assert terminal.line() == ""
        assert threads() == []


def test_ctrl_c_takes_the_line_away(terminal):
    latch = HostLatch()
    with cs.Engine(workers=1) as engine:
        engine.push(latch.wait)

        def interrupted():
            with cs.progress(engine, file=terminal.file):
                terminal.read_until("0 of 1 ops")
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert terminal.line() == ""
        assert threads() == []
        latch.release()


def test_where_there_is_no_terminal_nothing_is_done(terminal, monkeypatch):
    with cs.Engine(workers=1) as engine:
        file = io.StringIO()
        with cs.progress(engine, file=file):
            assert threads() == []
        assert file.getvalue() == ""
        monkeypatch.setenv("TERM", "dumb")
        with cs.progress(engine, file=terminal.file):
            assert threads() == []


def test_a_terminal_that_is_gone_ends_the_line_and_not_the_program(terminal):
    latch = HostLatch()
    with cs.Engine(workers=1) as engine:
        engine.push(latch.wait)
        with cs.progress(engine, file=terminal.file):
            terminal.read_until("0 of 1 ops")
            (thread,) = threads()
            terminal.file.close()
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
            latch.release()


def test_a_line_is_of_one_block(terminal):
    with cs.Engine(workers=1) as engine:
        line = cs.progress(engine, file=terminal.file)
        with line:
            pass
        with pytest.raises(ValueError, match="covers one block"):
            line.__enter__()


def test_what_failed_is_counted():
    with cs.Engine("serial") as engine:
        op = engine.push(lambda: 1 / 0)
        with pytest.raises(cs.OpError):
            op.wait()
        assert said(engine.statistics(), 61.5) == "1 of 1 ops, 1 failed, 0 to go, 1:01"
