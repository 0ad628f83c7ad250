"""The order of execution: laziness, order, events, default streams, schedulers, faults."""

from __future__ import annotations

import threading

import pytest

from cudasync.softgpu.core.driver_types import result_codes
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure
from cudasync.softgpu.core.machine import Machine
from cudasync.softgpu.core.scheduling.executor import Executor
from cudasync.softgpu.core.streams.commands import Command, Step
from cudasync.softgpu.core.streams.streams import elapsed_ms


class Note(Command):
    """A command that writes its name into a list, and fails or yields on demand."""

    __slots__ = ("failure", "log", "name", "yields")

    def __init__(self, stream, log, name, *, yields=0, failure=0):
        super().__init__(stream)
        self.log = log
        self.name = name
        self.yields = yields
        self.failure = failure

    def run(self):
        if self.failure:
            raise DriverFailure(self.failure, f"{self.name} failed")
        if self.yields:
            self.yields -= 1
            return Step.YIELDED
        self.log.append(self.name)
        return Step.DONE

    @property
    def cost_us(self):
        return 10.0


@pytest.fixture
def machine():
    machine = Machine(total_bytes=1 << 20)
    machine.is_initialized = True
    machine.push(machine.retain_primary(machine.device(0)))
    return machine


def streams_of(machine, count, flags=1):
    return [machine.streams.create(flags) for _ in range(count)]


def put(machine, stream, log, name, **how):
    command = Note(stream, log, name, **how)
    machine.executor.enqueue(command)
    return command


def test_nothing_runs_before_something_waits(machine):
    log = []
    (stream,) = streams_of(machine, 1)
    put(machine, stream, log, "a")
    assert log == []
    machine.streams.synchronize(stream)
    assert log == ["a"]


def test_a_synchronise_runs_only_what_it_needs(machine):
    log = []
    first, second = streams_of(machine, 2)
    put(machine, first, log, "first")
    put(machine, second, log, "second")
    machine.streams.synchronize(second)
    assert log == ["second"]


def test_a_query_tells_what_was_and_makes_progress(machine):
    log = []
    (stream,) = streams_of(machine, 1)
    put(machine, stream, log, "a")
    put(machine, stream, log, "b")
    assert machine.streams.query(stream) is False
    assert log == ["a"]
    assert machine.streams.query(stream) is False
    assert machine.streams.query(stream) is True
    assert log == ["a", "b"]


def test_a_wait_orders_two_streams(machine):
    log = []
    first, second = streams_of(machine, 2)
    event = machine.streams.create_event(0)
    put(machine, first, log, "a")
    machine.streams.record(event, first)
    put(machine, first, log, "later")
    machine.streams.wait(second, event)
    put(machine, second, log, "b")
    machine.streams.synchronize(second)
    assert log == ["a", "b"]


def test_a_wait_keeps_the_record_it_was_called_with(machine):
    """A later record of the event does not move earlier waits."""
    log = []
    first, second = streams_of(machine, 2)
    event = machine.streams.create_event(0)
    machine.streams.record(event, first)
    machine.streams.wait(second, event)
    put(machine, first, log, "late")
    machine.streams.record(event, first)
    put(machine, second, log, "b")
    machine.streams.synchronize(second)
    assert log == ["b"]


def test_an_event_that_was_never_recorded_holds_nobody(machine):
    log = []
    (stream,) = streams_of(machine, 1)
    event = machine.streams.create_event(0)
    machine.streams.wait(stream, event)
    assert machine.streams.query_event(event)
    machine.streams.synchronize_event(event)
    put(machine, stream, log, "a")
    machine.streams.synchronize(stream)
    assert log == ["a"]


def test_the_legacy_stream_joins_with_blocking_streams(machine):
    log = []
    blocking, other = streams_of(machine, 2, flags=0)
    (free,) = streams_of(machine, 1)
    legacy = machine.streams.get(0)
    put(machine, free, log, "free")
    put(machine, blocking, log, "before")
    put(machine, legacy, log, "legacy")
    put(machine, other, log, "after")
    machine.streams.synchronize(other)
    assert log == ["before", "legacy", "after"]


def test_each_thread_has_its_own_default_stream(machine):
    found = [machine.streams.get(2)]
    context = machine.context()

    def look():
        machine.push(context)
        found.append(machine.streams.get(2))

    def look_on_a_thread():
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()

    look_on_a_thread()
    assert found[0] is not found[1]
    # A new look cleans up after ended threads. Python's join may return just before the thread
    # ends.
    for _ in range(1000):
        look_on_a_thread()
        if found[1] not in context.streams:
            break
    assert found[1] not in context.streams, "it ends with its thread"
    assert found[0] is machine.streams.get(2)


def test_fifo_takes_the_oldest(machine):
    log = []
    first, second = streams_of(machine, 2)
    for index in range(6):
        put(machine, (first, second)[index % 2], log, index)
    machine.streams.synchronize_context(machine.context())
    assert log == list(range(6))


def test_seeds_give_different_legal_orders_and_repeat():
    def order(seed):
        machine = Machine(total_bytes=1 << 20, scheduler=f"seed={seed}")
        machine.push(machine.retain_primary(machine.device(0)))
        log = []
        first, second = streams_of(machine, 2)
        for index in range(8):
            put(machine, (first, second)[index % 2], log, index)
        machine.streams.synchronize_context(machine.context())
        return tuple(log)

    orders = {seed: order(seed) for seed in range(10)}
    assert len(set(orders.values())) > 3
    assert all(order(seed) == found for seed, found in orders.items())
    for found in orders.values():
        assert [i for i in found if i % 2] == [1, 3, 5, 7]


@pytest.mark.parametrize("text", ["", "lifo", "seed", "seed=x", "fifo=1"])
def test_an_unknown_scheduler_is_refused(text):
    with pytest.raises(ValueError, match="there is no scheduler"):
        Machine(total_bytes=1 << 20, scheduler=text)


def test_every_order_is_no_scheduler_of_a_process():
    with pytest.raises(ValueError, match=r"cudasync\.testing\.explore"):
        Machine(total_bytes=1 << 20, scheduler="explore")


def test_a_command_that_yields_holds_its_own_stream_only(machine):
    log = []
    first, second = streams_of(machine, 2)
    put(machine, first, log, "patient", yields=5)
    put(machine, first, log, "behind")
    put(machine, second, log, "free")
    machine.streams.synchronize(second)
    assert log == ["free"]
    machine.streams.synchronize(first)
    assert log == ["free", "patient", "behind"]


def test_who_waits_for_memory_lets_everybody_else_run(machine):
    """The write is no dependency of the waiting stream, but must run all the same."""
    first, second = streams_of(machine, 2)
    word = machine.memory.allocate_device(4).start
    machine.transfers.fill(first, word, b"\0\0\0\0", 1)
    machine.streams.synchronize(first)
    machine.streams.wait_value(first, word, 7, 1, 4)
    machine.streams.write_value(second, word, 7, 4)
    machine.streams.synchronize(first)


def test_the_host_may_end_a_wait_for_memory(machine):
    (stream,) = streams_of(machine, 1)
    word = machine.memory.allocate_device(4).start
    machine.transfers.fill(stream, word, b"\0\0\0\0", 1)
    machine.streams.synchronize(stream)
    machine.streams.wait_value(stream, word, 1, 0, 4)
    (other,) = streams_of(machine, 1)
    context = machine.context()

    def write():
        machine.push(context)
        machine.streams.write_value(other, word, 1, 4)
        machine.streams.synchronize(other)

    assert machine.streams.query(stream) is False
    thread = threading.Thread(target=write)
    thread.start()
    machine.streams.synchronize(stream)
    thread.join()


def test_a_deadlock_is_reported_with_every_blocked_stream(machine):
    log = []
    first, second = streams_of(machine, 2)
    never = Note(second, log, "never")
    machine.executor.enqueue(Note(first, log, "stuck"), (never,))
    with pytest.raises(DriverFailure) as caught:
        machine.streams.synchronize(first)
    assert caught.value.code == result_codes.ILLEGAL_STATE
    assert first.name in caught.value.detail
    assert second.name in caught.value.detail


def test_a_fault_sticks_drops_what_is_behind_and_spares_other_devices():
    machine = Machine(devices=2, total_bytes=1 << 20)
    log = []
    contexts = [machine.retain_primary(device) for device in machine.devices]
    machine.push(contexts[0])
    (bad,) = streams_of(machine, 1)
    machine.push(contexts[1])
    (good,) = streams_of(machine, 1)
    failing = put(machine, bad, log, "bad", failure=result_codes.ILLEGAL_ADDRESS)
    put(machine, bad, log, "behind")
    machine.executor.enqueue(Note(good, log, "good"), (failing,))
    with pytest.raises(DriverFailure, match="bad failed"):
        machine.streams.synchronize(bad)
    with pytest.raises(DriverFailure, match="bad failed"):
        machine.streams.get(bad.handle)
    machine.streams.synchronize(good)
    assert log == ["good"]
    machine.reset_primary(machine.device(0))
    machine.set_current(contexts[0])
    (fresh,) = streams_of(machine, 1)
    put(machine, fresh, log, "fresh")
    machine.streams.synchronize(fresh)
    assert log == ["good", "fresh"]
    with pytest.raises(DriverFailure) as caught:
        machine.streams.get(bad.handle)
    assert caught.value.code == result_codes.INVALID_HANDLE


def test_a_destroyed_stream_still_does_its_work(machine):
    log = []
    (stream,) = streams_of(machine, 1)
    put(machine, stream, log, "a", yields=1)
    machine.streams.destroy(stream.handle)
    with pytest.raises(DriverFailure):
        machine.streams.get(stream.handle)
    machine.streams.synchronize_context(machine.context())
    assert log == ["a"]
    assert stream not in machine.context().streams


def test_virtual_time_follows_dependencies_and_not_the_clock(machine):
    log = []
    first, second = streams_of(machine, 2)
    events = [machine.streams.create_event(0) for _ in range(3)]
    machine.streams.record(events[0], second)
    put(machine, first, log, "a")
    put(machine, first, log, "b")
    machine.streams.record(events[1], first)
    machine.streams.wait(second, events[1])
    put(machine, second, log, "c")
    machine.streams.record(events[2], second)
    with pytest.raises(DriverFailure) as caught:
        elapsed_ms(events[0], events[2])
    assert caught.value.code == result_codes.NOT_READY
    machine.streams.synchronize_context(machine.context())
    assert elapsed_ms(events[0], events[1]) == pytest.approx(0.020)
    assert elapsed_ms(events[0], events[2]) == pytest.approx(0.030)


def test_threads_that_enqueue_and_wait_at_once_all_finish(machine):
    log = []
    context = machine.context()

    def work(name):
        machine.push(context)
        (stream,) = streams_of(machine, 1)
        for index in range(200):
            put(machine, stream, log, (name, index))
            if index % 10 == 0:
                machine.streams.synchronize(stream)
        machine.streams.synchronize(stream)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(log) == 800
    for name in range(4):
        assert [index for who, index in log if who == name] == list(range(200))


@pytest.mark.parametrize("verb", ["_finish", "_release"])
def test_an_interrupt_while_a_command_is_put_away_neither_loses_nor_repeats_anything(
    machine, verb, monkeypatch
):
    log = []
    first, second = streams_of(machine, 2)
    event = machine.streams.create_event(0)
    put(machine, first, log, "a")
    machine.streams.record(event, first)
    put(machine, first, log, "b")
    machine.streams.wait(second, event)
    put(machine, second, log, "c")
    whole, interrupts = getattr(Executor, verb), [True, True]

    def interrupted(self, command):
        if interrupts:
            interrupts.pop()
            raise KeyboardInterrupt
        whole(self, command)

    monkeypatch.setattr(Executor, verb, interrupted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            machine.streams.synchronize_context(machine.context())
    machine.streams.synchronize_context(machine.context())
    assert sorted(log) == ["a", "b", "c"]
    assert log.index("a") < min(log.index("b"), log.index("c"))


@pytest.mark.parametrize("scheduler", ["fifo", "seed=1", "threaded"])
def test_what_an_interrupt_kept_from_being_entered_as_ready_is_done_all_the_same(scheduler):
    machine = Machine(total_bytes=1 << 20, scheduler=scheduler)
    machine.push(machine.retain_primary(machine.device(0)))
    log = []
    (stream,) = streams_of(machine, 1)
    executor = machine.executor
    with executor.lock:
        command = Note(stream, log, "a")
        command.serial = next(executor._serials)
        stream.tail = command
        stream.pending.append(command)
    machine.streams.synchronize(stream)
    assert log == ["a"]
    machine.end()
