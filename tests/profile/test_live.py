"""The live view shows present activity, on a terminal, and only while its block lasts."""

from __future__ import annotations

import io
import re
import signal
import sys
import threading

import numpy as np
import pytest
from helpers.interfaces.terminal import PATIENCE_S, Terminal

import cudasync as cs
from cudasync.profile import snapshot_text
from cudasync.profile.snapshot import look
from cudasync.testing import HostLatch, Latch

named_threads = pytest.mark.skipif(
    not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="frames are not safe without a GIL"
)


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    yield terminal
    terminal.close()


def engine_in(found, engine):
    """The entry of `engine` in a look, or in the data of a view."""
    (mine,) = [each for each in found["engines"] if each["number"] == id(engine)]
    return mine


def test_it_says_what_runs_what_waits_and_who_is_idle():
    value, latch, begun = cs.Var("value"), HostLatch(), threading.Event()

    def hold():
        begun.set()
        latch.wait()

    with cs.Engine(workers=2) as engine:
        engine.push(hold, writes=value, name="long")
        readers = [engine.push(lambda: None, reads=value, name="reader") for _ in range(30)]
        engine.push(lambda: None, name="aside").wait(PATIENCE_S)
        assert begun.wait(PATIENCE_S)
        text = str(cs.live())
        assert "async engine: 31 ops in flight" in text
        assert re.search(r"\n  worker compute \d+ +long #", text)
        assert "30 wait" in text
        assert f"reader #{readers[0].number} pushed at {readers[0].push_site}, for long #" in text
        assert "and 22 more" in text
        mine = engine_in(look(), engine)
        assert sum(each["count"] for each in mine["running"]) == 1
        assert mine["waiting"]["count"] == 30
        assert len(mine["waiting"]["ops"]) == 20
        latch.release()
        engine.waitall()
        assert engine_in(look(), engine)["in_flight"] == 0


def test_rates_are_what_got_over_between_two_looks():
    with cs.Engine(workers=1) as engine, cs.use(engine):
        before = look()
        for _ in range(7):
            engine.push(lambda: None)
        x = cs.array(np.ones(10, np.float32), device=0)
        engine.waitall()
        counts = engine.statistics()
        after = look()
        host, device = snapshot_text.rates(after, before)[id(engine)]
        passed_s = after["at_s"] - before["at_s"]
        assert host * passed_s == pytest.approx(counts.host_ops)
        assert device * passed_s == pytest.approx(counts.device_ops)
        assert counts.host_ops >= 7
        assert counts.device_ops >= 1
        del x
        assert " host and " in "\n".join(snapshot_text.lines(after, before))
        assert " host and " not in "\n".join(snapshot_text.lines(after))
        data = snapshot_text.with_rates(after, before)
        assert engine_in(data, engine)["host_ops_per_s"] == host
        assert engine_in(snapshot_text.with_rates(after, None), engine)["host_ops_per_s"] is None


def test_memory_of_arrays_is_shown_and_counts_what_is_kept_for_later():
    with cs.Engine(workers=1) as engine, cs.use(engine):
        x = cs.zeros(1_000_000, device=0)
        engine.waitall()
        (mine,) = [each for each in look()["memory"] if each["device"] == 0]
        assert mine["allocated_bytes"] - mine["cached_bytes"] >= 4_000_000
        assert mine["peak_bytes"] >= mine["allocated_bytes"] >= x.nbytes
        assert "memory of device 0: " in str(cs.live())


def test_memory_that_went_with_a_reset_is_not_kept_for_later():
    def kept():
        with cs.Engine(workers=1) as engine, cs.use(engine):
            x = cs.zeros(1000, device=0)
            # Dead results return to the pool.
            for _ in range(3):
                x = x + 1
            engine.waitall()
            (mine,) = [each for each in look()["memory"] if each["device"] == 0]
        return mine["cached_bytes"], mine["allocated_bytes"], x.nbytes

    cs.Device(0).reset()
    first, allocated, used = kept()
    assert 0 < first <= allocated - used
    cs.Device(0).reset()
    again, allocated, used = kept()
    assert 0 < again <= allocated - used


@named_threads
def test_a_thread_that_is_held_back_or_waits_for_a_device_is_named():
    latch = HostLatch()
    stream = cs.Stream(0)
    with cs.Engine(workers=1, max_in_flight=1) as engine, Latch() as device_latch:
        device_latch.hold(stream)
        engine.push(latch.wait, name="long")
        threads = [
            threading.Thread(target=engine.push, args=(int,), name="pushes"),
            threading.Thread(target=stream.synchronize, name="synchronizes"),
        ]
        for each in threads:
            each.start()
        found = {}
        while not {"pushes", "synchronizes"} <= set(found):
            found = {each["thread"]: each["waits_for"] for each in look()["threads"]}
        latch.release()
        device_latch.release()
        assert found["pushes"] == "fewer than 1 ops in flight (max_in_flight)"
        assert found["synchronizes"] == "a stream of Device(0)"
        # The threads end before the engine closes, which would refuse their push.
        for each in threads:
            each.join(PATIENCE_S)


def test_a_terminal_has_the_view_while_the_block_lasts_and_nothing_after(terminal):
    latch = HostLatch()
    with cs.Engine(workers=1) as engine:
        terminal.file.write("what the program says\n")
        with cs.live(file=terminal.file):
            engine.push(latch.wait, name="long")
            terminal.read_until("long #")
            latch.release()
            engine.waitall()
        assert [line for line in terminal.screen() if line] == ["what the program says"]
    assert all(each.name != "cudasync live" for each in threading.enumerate())


def test_ctrl_c_takes_the_view_away(terminal):
    def interrupted():
        with cs.live(file=terminal.file):
            terminal.read_until("process ")
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert terminal.screen() == [""]


def test_where_there_is_no_terminal_nothing_is_drawn():
    file = io.StringIO()
    with cs.live(file=file):
        assert all(each.name != "cudasync live" for each in threading.enumerate())
    assert file.getvalue() == ""


def test_what_has_no_room_is_cut_and_nothing_steers_the_terminal():
    assert snapshot_text.cropped(["abcdef", "b", "c", "d"], 3, 3) == [
        "abc",
        "b",
        "... 2 lines more"[:3],
    ]
    with cs.Engine("serial") as engine:
        said = []
        engine.push(lambda: said.append(snapshot_text.lines(look())), name="a\x1b[2Jb\nc").wait()
    (line,) = [line for line in said[0] if "[2Jb" in line]
    assert "a?[2Jb?c #" in line
