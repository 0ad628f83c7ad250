"""Callbacks of ops: an exception of a callback is lost, whatever its type, and harms no thread."""

from __future__ import annotations

import asyncio
import threading

import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, engine_of

import cudasync as cs

# Exceptions that end a thread, a task or a generator, and a plain exception.
ENDS = [SystemExit, asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, ValueError]


def raiser(error: type[BaseException], called: threading.Event):
    def callback() -> None:
        called.set()
        raise error

    return callback


@pytest.mark.parametrize("error", ENDS)
def test_a_worker_goes_on_after_a_callback_that_raises(error):
    gate, called, ran = threading.Event(), threading.Event(), threading.Event()
    with engine_of(workers=1) as engine:
        op = engine.push(lambda: gate.wait(PATIENCE_S))
        op.add_done_callback(raiser(error, called))
        gate.set()
        assert called.wait(PATIENCE_S)
        # No thread waits for this op, but it runs.
        engine.push(ran.set)
        assert ran.wait(PATIENCE_S)


@pytest.mark.parametrize("error", ENDS)
def test_a_stream_is_watched_after_a_callback_that_raises(error):
    called, ran, token = threading.Event(), threading.Event(), cs.Var("token")
    with engine_of(workers=1, streams=1) as engine:
        op = engine.push(lambda stream: None, device=0)
        op.add_done_callback(raiser(error, called))
        try:
            assert called.wait(PATIENCE_S)
        except KeyboardInterrupt:
            # The op was over before, so the callback runs here. Then Ctrl-C belongs to this thread.
            assert error is KeyboardInterrupt
        engine.push(lambda stream: None, writes=token, device=0)
        engine.push(ran.set, reads=token)
        assert ran.wait(PATIENCE_S)


@pytest.mark.parametrize("error", [SystemExit, asyncio.CancelledError, ValueError])
def test_one_that_is_called_at_once_raises_nothing_either(error):
    called = threading.Event()
    with engine_of(workers=1) as engine:
        op = engine.push(int)
        op.wait(PATIENCE_S)
        op.add_done_callback(raiser(error, called))
        assert called.is_set()


def test_ctrl_c_in_one_that_is_called_at_once_is_the_callers():
    called, others = threading.Event(), threading.Event()
    with engine_of(workers=1) as engine:
        op = engine.push(int)
        op.wait(PATIENCE_S)
        with pytest.raises(KeyboardInterrupt):
            op.add_done_callback(raiser(KeyboardInterrupt, called))
        op.add_done_callback(others.set)
        assert others.is_set()
