"""Rules under every scheduler: when memory is read, and that no copy sees old contents."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager

import pytest

from cudasync.softgpu.core.driver_types import result_codes
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure
from cudasync.softgpu.core.exploration.session import Session
from cudasync.softgpu.core.machine import Machine
from cudasync.softgpu.core.memory.allocation_table import MemoryKind
from cudasync.softgpu.core.streams.commands import Command
from cudasync.softgpu.interface.poison import PATTERN

SIZE = 64
POISON = PATTERN * (SIZE // 2)


@contextmanager
def machine_of(scheduler):
    """A machine; under "explore" it is in the first run of an exploration."""
    machine = Machine(
        total_bytes=1 << 20, scheduler="fifo" if scheduler == "explore" else scheduler
    )
    machine.push(machine.retain_primary(machine.device(0)))
    session = Session(machine) if scheduler == "explore" else None
    if session is not None:
        assert session.next()
    yield machine
    if session is not None:
        assert not session.next()
        assert session.report()["orders"] == 1
        session.end()
    machine.end()


@pytest.fixture(params=["fifo", "seed=1", "seed=2", "seed=3", "explore", "threaded"])
def machine(request):
    with machine_of(request.param) as machine:
        yield machine


class Gate:
    """Holds a stream at a word of host memory until `open`."""

    def __init__(self, machine, stream):
        word = machine.memory.allocate_host(4, MemoryKind.PINNED).start
        self._word = ctypes.c_uint32.from_address(word)
        self._word.value = 0
        machine.streams.wait_value(stream, word, 1, 1, 4)

    def open(self):
        self._word.value = 1


def contents(address):
    return ctypes.string_at(address, SIZE)


def test_pinned_memory_is_read_when_the_copy_runs(machine):
    stream = machine.streams.create(1)
    source = machine.memory.allocate_host(SIZE, MemoryKind.PINNED).start
    target = machine.memory.allocate_device(SIZE).start
    ctypes.memset(source, 1, SIZE)
    gate = Gate(machine, stream)
    memory = machine.memory
    machine.transfers.copy(stream, memory.place(target, SIZE), memory.place(source, SIZE), SIZE)
    ctypes.memset(source, 2, SIZE)
    gate.open()
    machine.streams.synchronize(stream)
    assert contents(target) == b"\2" * SIZE


def test_pageable_memory_is_read_when_the_copy_is_called(machine):
    stream = machine.streams.create(1)
    source = ctypes.create_string_buffer(b"\1" * SIZE, SIZE)
    address = ctypes.addressof(source)
    target = machine.memory.allocate_device(SIZE).start
    gate = Gate(machine, stream)
    memory = machine.memory
    machine.transfers.copy(
        stream, memory.place(target, SIZE), memory.any_place(address, SIZE), SIZE
    )
    ctypes.memset(address, 2, SIZE)
    gate.open()
    machine.streams.synchronize(stream)
    assert contents(target) == b"\1" * SIZE


def test_a_copy_to_pageable_memory_is_done_on_return(machine):
    stream = machine.streams.create(1)
    target = ctypes.create_string_buffer(SIZE)
    source = machine.memory.allocate_device(SIZE).start
    machine.transfers.fill(stream, source, b"\3", SIZE)
    place = machine.memory.any_place(ctypes.addressof(target), SIZE)
    machine.transfers.copy(stream, place, machine.memory.place(source, SIZE), SIZE)
    assert target.raw == b"\3" * SIZE


def test_fresh_and_freed_memory_is_poisoned(machine):
    stream = machine.streams.create(1)
    start = machine.memory.allocate_device(SIZE).start
    assert contents(start) == POISON
    machine.transfers.fill(stream, start, b"\4", SIZE)
    machine.memory.free(start)
    assert contents(start) == POISON


def test_memory_that_a_stream_frees_is_poisoned_when_the_stream_gets_there(machine):
    stream = machine.streams.create(1)
    start = machine.memory.allocate_async(SIZE, stream).start
    machine.transfers.fill(stream, start, b"\5", SIZE)
    machine.streams.synchronize(stream)
    gate = Gate(machine, stream)
    machine.memory.free_async(start, stream)
    assert machine.streams.query(stream) is False
    assert contents(start) == b"\5" * SIZE
    gate.open()
    machine.streams.synchronize(stream)
    assert contents(start) == POISON


@pytest.mark.parametrize("scheduler", ["fifo", "seed=1", "threaded"])
def test_our_own_mistake_is_an_error_code_and_not_a_crash(scheduler):
    class Broken(Command):
        def run(self):
            raise ZeroDivisionError("oops")

    with machine_of(scheduler) as machine:
        stream = machine.streams.create(1)
        machine.executor.enqueue(Broken(stream))
        with pytest.raises(DriverFailure, match="oops") as caught:
            machine.streams.synchronize(stream)
        assert caught.value.code == result_codes.UNKNOWN
