"""Events are positions in streams, and waits join the next command; no program can tell."""

from __future__ import annotations

import threading
import weakref

import pytest
from helpers.driver.stream_programs import Note

from cudasync.softgpu.core.driver_types.result_codes import DriverFailure
from cudasync.softgpu.core.machine import Machine
from cudasync.softgpu.core.memory.copy_commands import Copy, Place
from cudasync.softgpu.core.streams.context_events import record_context
from cudasync.softgpu.core.streams.deadlock_detection import deadlock_report
from cudasync.softgpu.core.streams.memory_operations import WaitValue
from cudasync.softgpu.core.streams.streams import elapsed_ms


class Long(Note):
    """A note with a command that takes virtual time."""

    __slots__ = ()
    cost_us = 5.0


class Program:
    """Streams, events and a trace of what ran."""

    def __init__(self, scheduler="fifo"):
        self.machine = Machine(total_bytes=1 << 20, scheduler=scheduler)
        self.machine.push(self.machine.retain_primary(self.machine.device(0)))
        self.context = self.machine.context()
        self.verbs = self.machine.streams
        self.trace = []

    def stream(self, flags=1):
        return self.verbs.create(flags)

    def run(self, stream, number):
        self.machine.executor.enqueue(Note(stream, self.trace, number, 0))

    def after(self, stream, number=1):
        """Enqueue a command on a stream, and record an event behind it."""
        self.run(stream, number)
        event = self.verbs.create_event(0)
        self.verbs.record(event, stream)
        return event


@pytest.fixture
def program():
    return Program()


def test_an_event_after_a_command_is_reached_with_it_and_not_before(program):
    event = program.after(program.stream())
    assert not program.verbs.query_event(event)
    program.verbs.synchronize_event(event)
    assert program.trace == [1]
    assert program.verbs.query_event(event)


def test_an_event_does_not_stand_for_what_came_later(program):
    stream = program.stream()
    event = program.after(stream)
    program.run(stream, 2)
    program.verbs.synchronize_event(event)
    assert program.trace == [1]


def test_an_event_of_a_stream_with_nothing_to_do_is_reached_at_once(program):
    event = program.verbs.create_event(0)
    program.verbs.record(event, program.stream())
    assert program.verbs.query_event(event)
    assert elapsed_ms(event, event) == 0.0


def test_only_a_recorded_event_has_a_time(program):
    never, event = program.verbs.create_event(0), program.after(program.stream())
    for pair in ((never, event), (event, never)):
        with pytest.raises(DriverFailure, match="must have been recorded"):
            elapsed_ms(*pair)
    with pytest.raises(DriverFailure, match="not reached"):
        elapsed_ms(event, event)


@pytest.mark.parametrize("is_done", [False, True])
def test_what_waits_for_an_event_starts_no_earlier_in_virtual_time(program, is_done):
    far, near = program.stream(), program.stream()
    start = program.verbs.create_event(0)
    program.verbs.record(start, near)
    place = Place(program.machine.memory.allocate_device(1 << 16).start, None)
    program.machine.executor.enqueue(Copy(far, place, place, 1 << 16))
    copied = program.verbs.create_event(0)
    program.verbs.record(copied, far)
    if is_done:
        program.machine.executor.finish_nowait([far.tail])
    program.verbs.wait(near, copied)
    end = program.verbs.create_event(0)
    program.verbs.record(end, near)
    program.verbs.synchronize_event(end)
    assert elapsed_ms(start, end) >= elapsed_ms(start, copied) > 0


def test_virtual_time_is_what_the_commands_in_between_cost(program):
    stream, place = (
        program.stream(),
        Place(program.machine.memory.allocate_device(1 << 19).start, None),
    )
    start = recorded(program, stream)
    program.machine.executor.enqueue(Copy(stream, place, place, 1 << 19))
    end = recorded(program, stream)
    program.verbs.synchronize_event(end)
    assert elapsed_ms(start, end) == pytest.approx(0.05343, abs=1e-5)


ENDS = {
    "synchronise": lambda p, s: p.verbs.synchronize(s),
    "context": lambda p, s: p.verbs.synchronize_context(p.context),
    "destroy": lambda p, s: p.verbs.destroy(s.handle),
    "record": lambda p, s: p.verbs.synchronize_event(recorded(p, s)),
    "context's record": lambda p, s: p.verbs.synchronize_event(context_record(p)),
    "default stream": lambda p, s: p.verbs.synchronize(p.context.legacy),
    "default stream's command": lambda p, s: (p.run(p.context.legacy, 9), sync_legacy(p)),
    "next command": lambda p, s: (p.run(s, 9), p.verbs.synchronize(s)),
}


def recorded(program, stream):
    event = program.verbs.create_event(0)
    program.verbs.record(event, stream)
    return event


def context_record(program):
    event = program.verbs.create_event(0)
    record_context(program.machine, event, program.context)
    return event


def sync_legacy(program):
    program.verbs.synchronize(program.context.legacy)


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_wait_is_part_of_its_stream_although_nothing_came_after_it(program, end):
    far, near = program.stream(), program.stream(flags=0)
    program.verbs.wait(near, program.after(far))
    end(program, near)
    assert program.trace[:1] == [1]


def test_a_stream_that_waits_is_asked_as_often_as_it_takes(program):
    far, near = program.stream(), program.stream()
    program.verbs.wait(near, program.after(far))
    answers = [program.verbs.query(near) for _ in range(4)]
    assert answers[0] is False
    assert answers[-1] is True
    assert program.trace == [1]


def test_an_event_behind_a_wait_stands_for_it(program):
    far, near, last = (program.stream() for _ in range(3))
    program.verbs.wait(near, program.after(far))
    program.verbs.wait(last, recorded(program, near))
    program.run(last, 2)
    program.verbs.synchronize(last)
    assert program.trace == [1, 2]


def test_a_wait_is_for_the_record_of_its_moment(program):
    first, second, near = (program.stream() for _ in range(3))
    event = program.after(first)
    program.verbs.wait(near, event)
    program.run(second, 2)
    program.verbs.record(event, second)
    program.run(near, 3)
    program.verbs.synchronize(near)
    assert program.trace == [1, 3]


def test_a_stream_that_only_waits_is_named_in_a_deadlock(program):
    stuck, near = program.stream(), program.stream()
    place = program.machine.memory.place(program.machine.memory.allocate_device(256).start, 4)
    program.machine.executor.enqueue(WaitValue(stuck, place, 77, 1, 4))
    program.verbs.wait(near, recorded(program, stuck))
    # Whether this is a deadlock depends on the threads of the process.
    text = deadlock_report([stuck.tail])
    assert f"{near.name}: its wait for an event waits for a wait for a value" in text


@pytest.mark.parametrize("scheduler", ["fifo", "seed=3", "threaded"])
def test_no_wait_is_lost_when_threads_share_a_stream(scheduler):
    program = Program(scheduler)
    near = program.stream()
    rounds, lost = 60, []

    def work(number):
        program.machine.push(program.context)
        far = program.stream()
        for index in range(rounds):
            name = (number, index)
            program.verbs.wait(near, program.after(far, name))
            command = Note(near, program.trace, ("after", *name), 0)
            program.machine.executor.enqueue(command)
        program.verbs.synchronize(far)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    program.verbs.synchronize(near)
    place = {name: at for at, name in enumerate(program.trace)}
    for number in range(4):
        for index in range(rounds):
            if place["after", number, index] < place[number, index]:
                lost.append((number, index))
    assert not lost
    program.machine.end()


def test_an_event_does_not_keep_what_a_copy_had_staged(program):
    class Staged(bytearray):
        """A buffer that a weak reference can watch."""

    staged = Staged(64)
    alive = weakref.ref(staged)
    memory = program.machine.memory.allocate_device(256).start
    stream = program.stream()
    copy = Copy(stream, Place(memory, None), Place(memory, None, staged), 64)
    program.machine.executor.enqueue(copy)
    del staged, copy
    event = recorded(program, stream)
    assert alive() is not None
    program.verbs.synchronize_event(event)
    assert alive() is None


@pytest.mark.parametrize("ask", ["query_event", "synchronize_event", "query", "synchronize"])
def test_what_is_enqueued_after_an_answer_is_later_than_what_was_answered(program, ask):
    """The event may also have been recorded, or waited for, behind work that was already done."""
    near, far, other = (program.stream() for _ in range(3))
    program.machine.executor.enqueue(Long(near, program.trace, 1, 0))
    before = program.verbs.create_event(0)
    program.verbs.record(before, near)
    program.verbs.wait(far, before)
    program.run(far, 2)
    # A query makes some progress without saying so: the work on `near` is done.
    assert not program.verbs.query(far)
    assert program.trace == [1]
    if ask.endswith("_event"):
        event = program.verbs.create_event(0)
        program.verbs.record(event, near)
        told = getattr(program.verbs, ask)(event)
    else:
        program.verbs.wait(other, before)
        told = getattr(program.verbs, ask)(other)
    assert told is not False
    later = program.verbs.create_event(0)
    program.verbs.record(later, program.stream())
    assert elapsed_ms(before, later) >= 0.0
