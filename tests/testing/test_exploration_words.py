"""The report of `explore` about an order, and about a program whose orders are chance."""

from __future__ import annotations

import contextlib
import inspect
import threading

import numpy as np
import pytest

import cudasync as cs
from cudasync.driver.extensions import exploration
from cudasync.testing import Exploration, explore


def line_of(function, text):
    """The place of `text` in the source of `function`, as file:line."""
    lines, first = inspect.getsourcelines(function)
    (found,) = [number for number, line in enumerate(lines, first) if text in line]
    return f"{inspect.getsourcefile(function)}:{found}"


def note_of(program):
    """The note about the order in which `program` fails."""
    with pytest.raises(AssertionError) as caught:
        explore(program)
    (note,) = caught.value.__notes__
    return note


def driver_program() -> None:
    left, right = cs.Stream(), cs.Stream()
    data, back = cs.DeviceBuffer(64), np.zeros(16, np.uint32)
    cs.memset_async(data, 0, stream=left)
    right.wait(left)
    cs.memset_async(data, 1, stream=right)
    cs.memcpy_async(back, data, stream=right)
    assert back[0] == 0


def test_each_step_names_the_line_that_asked_for_it():
    steps = note_of(driver_program).splitlines()
    for text in ("(data, 0", "(data, 1", "memcpy_async(back"):
        (step,) = [each for each in steps if each.endswith(", " + line_of(driver_program, text))]
        assert ("a copy of" if "memcpy" in text else "a memset of") in step


SET = """
.version 7.0
.target sm_75
.address_size 64
.visible .entry set(.param .u64 target, .param .u32 value)
{
    .reg .u64 %rd_target;
    .reg .u32 %r_value;
    ld.param.u64 %rd_target, [target];
    ld.param.u32 %r_value, [value];
    st.global.u32 [%rd_target], %r_value;
    ret;
}
"""


def engine_program(mode, gate=None, polls=False):
    """A program of an engine that fails, as its last line says."""
    kernel = cs.Module.from_ptx(SET).kernel("set")
    with cs.Engine(mode, workers=1) as engine:
        array, token = cs.zeros(4, np.int32), cs.Var()
        kernel[1, 1](array, np.uint32(1))
        if gate is not None:
            engine.push(gate.wait, writes=[token], reads=[array])
            engine.push(
                lambda stream: cs.memset_async(array, 1, stream=stream),
                reads=[token],
                writes=[array],
                device=cs.Device(0),
            )
            kernel[1, 1](array, np.uint32(2))
            gate.set()
        last = engine.push(lambda stream: None, device=cs.Device(0))
        while polls and not last.done():
            pass
        assert array.numpy()[0] == 0


@pytest.mark.parametrize("mode", ["async", "serial"])
def test_a_step_of_an_engine_names_its_push_or_the_call_in_its_function(mode):
    """This also holds if an engine thread enqueues the step, after the host op before it."""
    note = note_of(lambda: engine_program(mode, threading.Event() if mode == "async" else opened()))
    for text, what in (
        ("np.uint32(1)", "kernel set"),
        ("memset_async", "a memset of"),
        ("np.uint32(2)", "kernel set"),
        (".numpy()", "a copy of"),
    ):
        site = line_of(engine_program, text)
        assert [step for step in note.splitlines() if what in step and step.endswith(site)], note
    assert "unknown" not in note


def test_the_check_of_these_lines_finds_one_that_is_lost(monkeypatch):
    """The planted bug: driver calls are made without the push site of their op."""
    monkeypatch.setattr(exploration, "on_behalf", lambda site, fn, *args: fn(*args))
    note = note_of(lambda: engine_program("async", threading.Event()))
    site = line_of(engine_program, "np.uint32(2)")
    assert not [step for step in note.splitlines() if step.endswith(site)]


def opened():
    gate = threading.Event()
    gate.set()
    return gate


@pytest.mark.parametrize("work", ["kernels", "host ops", "polling"])
def test_a_program_of_an_engine_is_told_what_would_make_it_complete(work):
    def program(mode):
        with contextlib.suppress(AssertionError):
            gate = opened() if work == "host ops" else None
            engine_program(mode, gate, polls=work == "polling")

    found = explore(lambda: program("async"), most=20)
    assert not found.is_complete
    assert "the engine" in found.why
    assert "several threads" not in found.why
    assert 'cs.Engine("serial")' in found.why
    # Otherwise the engine might query by itself, which happens by chance.
    if work == "polling":
        assert "queries whether" in found.why
    # The advice is right.
    assert explore(lambda: program("serial"), most=20) == Exploration(1, is_complete=True)


def test_an_engine_and_threads_of_the_program_are_told_apart():
    def program():
        engine = cs.Engine("async")
        thread = threading.Thread(target=lambda: cs.Device(0).synchronize())
        with engine:
            # An engine thread calls the copy of pageable memory.
            cs.zeros(4).numpy()
            thread.start()
            thread.join()

    why = explore(program, most=5).why
    assert "several threads" in why
    assert "the engine" in why
