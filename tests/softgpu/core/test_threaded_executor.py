"""The scheduler `threaded`: commands start when they are enqueued, several at once."""

from __future__ import annotations

import ctypes
import threading

import pytest
from helpers.driver.stream_programs import Note as Turn

from cudasync.softgpu.core.driver_types import result_codes
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure
from cudasync.softgpu.core.machine import Machine
from cudasync.softgpu.core.memory.allocation_table import MemoryKind
from cudasync.softgpu.core.streams.commands import Command, Step
from cudasync.softgpu.core.streams.streams import elapsed_ms

PATIENCE_S = 20.0


class Held(Command):
    """A command that says when it runs, and holds its thread until `let_go` is set."""

    __slots__ = ("begun", "let_go", "thread")

    def __init__(self, stream, let_go=None):
        super().__init__(stream)
        self.begun = threading.Event()
        self.let_go = let_go or threading.Event()

    def run(self):
        self.thread = threading.get_ident()
        self.begun.set()
        assert self.let_go.wait(PATIENCE_S)
        return Step.DONE


@pytest.fixture
def machine():
    machine = Machine(devices=2, total_bytes=1 << 20, scheduler="threaded")
    machine.is_initialized = True
    machine.push(machine.retain_primary(machine.device(0)))
    yield machine
    machine.end()


def streams_of(machine, count):
    return [machine.streams.create(1) for _ in range(count)]


def hold(machine, stream, let_go=None):
    command = Held(stream, let_go)
    machine.executor.enqueue(command)
    return command


def test_a_command_starts_when_it_is_enqueued(machine):
    (stream,) = streams_of(machine, 1)
    command = hold(machine, stream)
    assert command.begun.wait(PATIENCE_S)
    assert command.thread != threading.get_ident()
    assert machine.streams.query(stream) is False
    command.let_go.set()
    machine.streams.synchronize(stream)
    assert machine.streams.query(stream) is True


def test_streams_and_devices_run_at_once(machine):
    """Each command waits until all have begun, so commands in sequence would wait for ever."""
    streams = streams_of(machine, 2)
    machine.push(machine.retain_primary(machine.device(1)))
    streams += streams_of(machine, 2)
    commands = [hold(machine, stream) for stream in streams]
    assert all(command.begun.wait(PATIENCE_S) for command in commands)
    assert len({command.thread for command in commands}) == len(commands)
    for command in commands:
        command.let_go.set()
    for stream in streams:
        machine.streams.synchronize(stream)


def test_a_stream_does_one_thing_at_a_time_and_in_order(machine):
    (stream,) = streams_of(machine, 1)
    first, second = hold(machine, stream), hold(machine, stream)
    assert first.begun.wait(PATIENCE_S)
    assert not second.begun.is_set()
    first.let_go.set()
    assert second.begun.wait(PATIENCE_S)
    second.let_go.set()
    machine.streams.synchronize(stream)


def test_a_query_tells_how_things_are(machine):
    """Under the other schedulers a query reports the past, and makes progress."""
    (stream,) = streams_of(machine, 1)
    command = hold(machine, stream)
    for _ in range(50):
        assert machine.streams.query(stream) is False
    command.let_go.set()
    while not machine.streams.query(stream):
        pass
    assert command.is_done


def test_events_are_timed_by_the_clock(machine):
    (stream,) = streams_of(machine, 1)
    start, end = machine.streams.create_event(0), machine.streams.create_event(0)
    command = hold(machine, stream)
    machine.streams.record(start, stream)
    assert command.begun.wait(PATIENCE_S)
    command.let_go.set()
    machine.streams.synchronize(stream)
    machine.streams.record(end, stream)
    machine.streams.synchronize(stream)
    # A virtual clock would measure 0, because no command came between.
    assert elapsed_ms(start, end) > 0


def test_a_wait_that_is_left_out_is_seen(machine):
    """The check above can fail: unordered work runs while the other stream is held."""
    first, second = streams_of(machine, 2)
    command, trace = hold(machine, first), []
    machine.executor.enqueue(Turn(first, trace, 1, 0))
    machine.executor.enqueue(Turn(second, trace, 2, 0))
    machine.streams.synchronize(second)
    assert trace == [2]
    command.let_go.set()
    machine.streams.synchronize(first)
    assert trace == [2, 1]


def test_who_waits_for_memory_is_tried_again(machine):
    first, second = streams_of(machine, 2)
    word = machine.memory.allocate_device(4).start
    machine.transfers.fill(first, word, b"\0\0\0\0", 1)
    machine.streams.synchronize(first)
    machine.streams.wait_value(first, word, 7, 1, 4)
    assert machine.streams.query(first) is False
    machine.streams.write_value(second, word, 7, 4)
    machine.streams.synchronize(first)


def test_the_host_may_end_a_wait_for_memory(machine):
    (stream,) = streams_of(machine, 1)
    word = machine.memory.allocate_host(4, MemoryKind.PINNED).start
    ctypes.c_uint32.from_address(word).value = 0
    machine.streams.wait_value(stream, word, 1, 1, 4)
    assert machine.streams.query(stream) is False
    ctypes.c_uint32.from_address(word).value = 1
    machine.streams.synchronize(stream)


def test_many_that_wait_for_memory_hold_up_nobody(machine):
    waiting = streams_of(machine, 40)
    word = machine.memory.allocate_device(4).start
    (free,) = streams_of(machine, 1)
    machine.transfers.fill(free, word, b"\0\0\0\0", 1)
    machine.streams.synchronize(free)
    for stream in waiting:
        machine.streams.wait_value(stream, word, 1, 1, 4)
    machine.transfers.fill(free, word, b"\1\0\0\0", 1)
    for stream in [free, *waiting]:
        machine.streams.synchronize(stream)


class Fails(Command):
    def run(self):
        raise DriverFailure(result_codes.ILLEGAL_ADDRESS, "bad")


def test_a_fault_sticks_and_what_runs_meanwhile_is_nobodys(machine):
    bad, busy = streams_of(machine, 2)
    command = hold(machine, busy)
    assert command.begun.wait(PATIENCE_S)
    machine.executor.enqueue(Fails(bad))
    with pytest.raises(DriverFailure, match="bad"):
        machine.streams.synchronize(bad)
    with pytest.raises(DriverFailure, match="bad"):
        machine.streams.synchronize(busy)
    command.let_go.set()
    machine.reset_primary(machine.device(0))
    machine.set_current(machine.device(0).primary)
    (fresh,) = streams_of(machine, 1)
    trace = []
    machine.executor.enqueue(Turn(fresh, trace, 1, 0))
    machine.streams.synchronize(fresh)
    assert trace == [1]


class Outlives(Command):
    """A command that goes on until its context has dropped it, and a little longer."""

    __slots__ = ("begun", "has_ended", "was_dropped")

    def __init__(self, stream):
        super().__init__(stream)
        self.begun, self.was_dropped = threading.Event(), threading.Event()
        self.has_ended = False

    def run(self):
        self.begun.set()
        assert self.was_dropped.wait(PATIENCE_S)
        self.has_ended = True
        return Step.DONE

    def dropped(self):
        self.was_dropped.set()


def test_a_reset_waits_for_what_executes(machine):
    """Otherwise an old kernel could write into memory that has a new owner by now."""
    (stream,) = streams_of(machine, 1)
    command = Outlives(stream)
    machine.executor.enqueue(command)
    assert command.begun.wait(PATIENCE_S)
    machine.reset_primary(machine.device(0))
    assert command.has_ended


def test_a_deadlock_is_reported(machine):
    first, second = streams_of(machine, 2)
    machine.executor.enqueue(Turn(first, [], 1, 0), (Turn(second, [], 2, 0),))
    with pytest.raises(DriverFailure, match="deadlock") as caught:
        machine.streams.synchronize(first)
    assert caught.value.code == result_codes.ILLEGAL_STATE


def test_a_finaliser_on_a_worker_is_put_off(machine):
    """The garbage collector may run on a worker; the memory is freed later on a thread of the
    program."""
    (stream,) = streams_of(machine, 1)
    block = machine.memory.allocate_device(64)

    class Collects(Command):
        def run(self):
            machine.memory.free(block.start)
            return Step.DONE

    machine.executor.enqueue(Collects(stream))
    machine.streams.synchronize(stream)
    assert machine.memory.find(block.start) is block
    machine.executor.deferred.run()
    assert machine.memory.find(block.start) is None


def test_threads_that_enqueue_and_wait_at_once_all_finish(machine):
    trace = []
    context = machine.context()

    def work(name):
        machine.push(context)
        (stream,) = streams_of(machine, 1)
        for index in range(100):
            machine.executor.enqueue(Turn(stream, trace, (name, index), 0))
            if index % 10 == 0:
                machine.streams.synchronize(stream)
        machine.streams.synchronize(stream)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    for name in range(4):
        assert [index for who, index in trace if who == name] == list(range(100))


def test_memory_is_found_whatever_others_free_meanwhile(machine):
    """Look-ups read the table without a lock, while workers allocate and free in stream order."""
    (stream,) = streams_of(machine, 1)
    lasting = [machine.memory.allocate_device(256) for _ in range(20)]
    for _ in range(300):
        made = machine.memory.allocate_async(256, stream)
        machine.memory.free_async(made.start, stream)
        assert all(machine.memory.find(each.start) is each for each in lasting[::5])
    machine.streams.synchronize(stream)
