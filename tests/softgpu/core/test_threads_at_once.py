"""Several threads use contexts, time, modules and captures at once: no state is lost."""

from __future__ import annotations

import ctypes
import threading

import pytest
from helpers.concurrency.thread_crew import together
from helpers.driver.graph_builder import HOST_FUNCTION
from helpers.driver.machines import CREW, at_once, new_machine

from cudasync.softgpu.abi.stub.error_strings import Details
from cudasync.softgpu.core.driver_types import result_codes
from cudasync.softgpu.core.driver_types.lru_cache import Remembered
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure
from cudasync.softgpu.core.graphs import user_objects
from cudasync.softgpu.core.memory.allocation_table import MemoryKind
from cudasync.softgpu.core.streams.context_events import hold_context
from cudasync.softgpu.core.streams.deadlock_detection import others_may_call
from cudasync.softgpu.interface.internal_threads import OURS, entered

ROUNDS = 200
THREAD_LOCAL, MOVE = 1, 1


@pytest.fixture
def machine():
    return new_machine(total_bytes=1 << 24, devices=2)


# Managers that are made when they are asked for

LATE = (
    "arrays", "executables", "expectations", "graphs", "green_contexts", "managed", "objects",
    "references",
)  # fmt: skip


def test_each_manager_is_made_once_for_all_threads(machine):
    found = [None] * CREW

    def work(index):
        found[index] = [getattr(machine, name) for name in LATE]

    at_once(machine, work)
    assert found == [found[0]] * CREW
    assert sorted(machine.made) == sorted(LATE)


@pytest.mark.parametrize("name", LATE)
def test_a_manager_that_is_asked_for_while_it_is_made_is_the_same(machine, monkeypatch, name):
    """As by a finaliser, or by a second thread just then."""
    manager = type(getattr(new_machine(total_bytes=1 << 24), name))
    make, inner = manager.__init__, []

    def init(self, machine):
        if not inner:
            inner.append(None)
            inner[0] = getattr(machine, name)
        make(self, machine)

    monkeypatch.setattr(manager, "__init__", init)
    assert getattr(machine, name) is inner[0] is getattr(machine, name)


def test_the_end_of_a_context_makes_no_manager(machine):
    context = machine.create(machine.device(0), 0)
    machine.memory.free(machine.memory.allocate_device(64).start)
    machine.destroy(context)
    assert machine.made == {}


# Contexts, time, deferred work, messages


def test_who_retains_a_context_and_lets_go_is_counted(machine):
    device = machine.device(0)
    context = machine.create(device, 0)

    def work(_index):
        for _ in range(20 * ROUNDS):
            machine.retain_primary(device)
            machine.attach(context)
            machine.release_primary(device)
            machine.detach(context)

    at_once(machine, work)
    assert (device.primary_uses, context.attached) == (1, 0)
    assert not context.is_destroyed


def test_time_that_a_thread_has_seen_pass_does_not_come_again(machine):
    executor = machine.executor

    def work(index):
        stream = machine.streams.create(1)
        for _ in range(100 * ROUNDS):
            now_us = executor.stream_us(stream) + index + 1
            executor.see(now_us)
            assert executor.stream_us(stream) >= now_us

    at_once(machine, work)


def test_what_finalisers_put_off_is_done_once_by_whoever_comes(machine):
    deferred = machine.executor.deferred
    done = []

    def work(index):
        for turn in range(20 * ROUNDS):
            deferred.actions.append(lambda turn=turn: done.append((index, turn)))
            deferred.run()

    at_once(machine, work)
    assert sorted(done) == [(i, turn) for i in range(CREW) for turn in range(20 * ROUNDS)]


def test_a_failure_says_what_the_asking_thread_did_wrong(machine):
    details = Details(report=False)

    def work(index):
        for turn in range(10 * ROUNDS):
            details.note(DriverFailure(result_codes.INVALID_VALUE, f"thread {index}, turn {turn}"))
            assert details.text(result_codes.INVALID_VALUE) == f"thread {index}, turn {turn}"
            details.note(DriverFailure(result_codes.INVALID_VALUE))
            assert details.text(result_codes.INVALID_VALUE) == "invalid argument"

    at_once(machine, work)


def test_a_thread_that_did_nothing_wrong_is_told_what_another_did():
    details = Details(report=False)
    together(lambda: details.note(DriverFailure(result_codes.INVALID_VALUE, "a size of 0")))
    assert details.text(result_codes.INVALID_VALUE) == "a size of 0"


def test_who_may_still_call_is_known_while_threads_run_and_end():
    """Frames of the threads may change meanwhile. The software GPU's own threads do not count."""
    known = 1 + len(OURS)
    done = []

    def calls(depth):
        return depth and calls(depth - 1)

    def ours():
        with entered():
            while not done:
                sorted(range(5), key=calls)

    def look():
        try:
            for _ in range(10 * ROUNDS):
                others_may_call(set(), 0)
        finally:
            done.append(None)

    together(ours, ours, ours, look)
    assert known == 1 + len(OURS)
    begun, gate = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (begun.set(), gate.wait(20)))
    before = others_may_call(set(), 0)
    thread.start()
    assert begun.wait(20)
    assert others_may_call(set(), 0)
    assert others_may_call({thread.ident}, 0) == before
    gate.set()
    thread.join()


# Waits for a whole context

WAIT_EQUAL = 1


@pytest.fixture
def held(machine):
    """Two unreached events. The teardown lets their streams go on."""
    word = machine.memory.allocate_host(4, MemoryKind.PINNED).start
    value = ctypes.c_uint32.from_address(word)
    value.value = 0
    events = [machine.streams.create_event(0) for _ in range(2)]
    for event in events:
        stream = machine.streams.create(1)
        machine.streams.wait_value(stream, word, 1, WAIT_EQUAL, 4)
        machine.streams.record(event, stream)
    yield events
    value.value = 1
    for event in events:
        machine.streams.synchronize_event(event)


def awaited_by(command):
    """All commands that a command comes after, and the command itself."""
    found, left = set(), [command]
    while left:
        each = left.pop()
        if each is not None and each not in found:
            found.add(each)
            left += [each.before, *each.dependencies]
    return found


def quicker(context, call):
    """Let another thread do all of `call` before the context gets its next stream."""

    class Streams(dict):
        def __setitem__(self, stream, value):
            context.streams = plain = dict(self)
            call()
            plain[stream] = value

    context.streams = Streams(context.streams)


@pytest.mark.parametrize("which", ["created", "a thread's own"])
def test_a_stream_that_comes_just_now_waits_for_what_all_wait_for(machine, held, which):
    context = machine.context()
    quicker(context, lambda: hold_context(machine, context, held[0]))
    stream = machine.streams.create(1) if which == "created" else context.per_thread
    assert held[0].record in awaited_by(machine.executor.tail(stream))


def test_what_two_threads_let_all_wait_for_is_all_waited_for(machine, held):
    context = machine.context()
    quicker(context, lambda: hold_context(machine, context, held[0]))
    hold_context(machine, context, held[1])
    tail = machine.executor.tail(machine.streams.create(1))
    assert awaited_by(tail) >= {event.record for event in held}


# Modules

TEXT = """.version 6.4
.target sm_75
.address_size 64
.visible .global .u32 word;
"""


def test_what_is_remembered_is_bounded_and_found_whoever_adds():
    remembered = Remembered(8)

    def work():
        for number in range(20 * ROUNDS):
            made = remembered.add(number % 37, [number % 37])
            assert made == [number % 37]
            assert remembered.get(number % 37) in (None, made)
            assert len(remembered) <= 8 + CREW

    together(*[work] * CREW)
    assert len(remembered) <= 8


def test_two_that_make_the_same_at_once_have_one_of_the_two():
    remembered, found = Remembered(10 * ROUNDS), [[], []]

    def work(mine):
        for number in range(10 * ROUNDS):
            mine.append(remembered.add(number, object()))

    together(lambda: work(found[0]), lambda: work(found[1]))
    assert found[0] == found[1]


def test_texts_are_loaded_by_several_threads_beyond_those_that_are_kept(machine):
    def work(index):
        for turn in range(ROUNDS):
            text = f"{TEXT}// {CREW * turn + index}"
            module = machine.modules.load(text.encode())
            machine.modules.unload(module.handle)

    at_once(machine, work)
    assert not machine.device(0).memory.used_by(MemoryKind.VARIABLE)


def test_a_library_is_one_module_in_a_context_whoever_comes_first(machine):
    """The variables exist once, so that the kernels of one thread write what those of others
    read."""
    context, memory = machine.context(), machine.device(0).memory
    libraries = [machine.modules.load_library(TEXT.encode()) for _ in range(ROUNDS)]
    found = [[] for _ in range(CREW)]

    def work(index):
        for library in libraries:
            found[index].append(machine.modules.module_of(library, context))

    at_once(machine, work)
    assert found == CREW * [[library.modules[context] for library in libraries]]
    assert (memory.used_by(MemoryKind.VARIABLE), len(context.modules)) == (4 * ROUNDS, ROUNDS)


# Captures and graphs


def test_the_legacy_stream_is_guarded_exactly_while_somebody_captures(machine):
    captures, legacy = machine.captures, machine.context().legacy

    def work(_index):
        stream = machine.streams.create(0)
        for _ in range(ROUNDS):
            captures.begin(stream, THREAD_LOCAL)
            assert legacy.capture is not None
            captures.end(stream)

    at_once(machine, work)
    assert (captures.active, legacy.capture) == ([], None)


def test_a_context_is_waited_for_while_another_is_captured(machine):
    elsewhere, captures, done = machine.device(1).primary, machine.captures, []

    def work(index):
        if index:
            while not done:
                captures.refuse_context(elsewhere, "a wait")
            return
        try:
            for _ in range(ROUNDS):
                first, event = machine.streams.create(1), machine.streams.create_event(0)
                capture = captures.begin(first, THREAD_LOCAL)
                machine.streams.record(event, first)
                for _ in range(20):
                    machine.streams.wait(machine.streams.create(1), event)
                assert len(capture.tips) == 21
                captures.forget(capture)
        finally:
            done.append(index)

    at_once(machine, work)


def test_what_a_graph_refers_to_goes_once_though_it_is_ended_in_its_last_step(machine):
    """The executable is destroyed when the end of its launch has run but is not yet marked as
    done."""
    graphs, ended = machine.graphs, []
    destructor = HOST_FUNCTION(ended.append)
    address = ctypes.cast(destructor, ctypes.c_void_p).value
    stream = machine.streams.create(1)
    graph = graphs.create(0)
    thing = graphs.user_objects.create(7, address, 1, 1)
    user_objects.retain(graph, thing, 1, MOVE)
    executable = machine.executables.instantiate(graph, 0)
    graphs.destroy(graph.handle)
    executable.launch(stream)
    end = executable.end_of_last

    def end_and_destroy(*arguments):
        end(*arguments)
        together(lambda: machine.executables.destroy(executable.handle))

    executable.end_of_last = end_and_destroy
    machine.streams.synchronize(stream)
    assert ended == [7]
