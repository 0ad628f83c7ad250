"""A call that waits for its copy reads a large pageable source where it lies."""

from __future__ import annotations

import ctypes
import threading

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import ok

from cudasync.softgpu.core.machine import Machine
from cudasync.softgpu.core.memory import copy_commands
from cudasync.softgpu.core.memory.copy_commands import Place
from cudasync.softgpu.core.memory.row_copies import move_rows
from cudasync.softgpu.core.streams.stream_manager import StreamManager

PATIENCE_S = 20.0
SIZE = 96 << 10


@pytest.mark.parametrize("scheduler", ["fifo", "seed=1"])
def test_an_interrupted_copy_later_copies_the_source_as_it_was(scheduler, monkeypatch):
    """The program may free the source once the call is left by an interrupt."""
    machine = Machine(total_bytes=1 << 20, scheduler=scheduler)
    machine.is_initialized = True
    machine.push(machine.retain_primary(machine.device(0)))
    stream = machine.streams.create(1)
    made = machine.memory.allocate_device(SIZE)
    source = ctypes.create_string_buffer(b"\1" * SIZE, SIZE)

    def interrupted(self, command):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StreamManager, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            machine.transfers.copy_now(
                stream, Place(made.start, made), Place(ctypes.addressof(source), None), SIZE
            )
    ctypes.memset(source, 2, SIZE)
    machine.streams.synchronize(stream)
    assert ctypes.string_at(made.start, SIZE) == b"\1" * SIZE
    machine.end()


def test_an_interrupted_call_returns_once_no_thread_reads_the_source(monkeypatch):
    """Another thread may be in the middle of the copy when the interrupt comes."""
    machine = Machine(total_bytes=1 << 20, scheduler="fifo")
    machine.is_initialized = True
    machine.push(machine.retain_primary(machine.device(0)))
    stream = machine.streams.create(1)
    made = machine.memory.allocate_device(SIZE)
    source = ctypes.create_string_buffer(SIZE)
    reads, may_end, ended = threading.Event(), threading.Event(), []
    threads = []

    def slowly(*arguments):
        reads.set()
        assert may_end.wait(PATIENCE_S)
        move_rows(*arguments)
        ended.append(True)

    def interrupted(self, command):
        threads.append(threading.Thread(target=executes))
        threads[0].start()
        assert reads.wait(PATIENCE_S)
        threading.Timer(0.05, may_end.set).start()
        raise KeyboardInterrupt

    def executes():
        machine.executor.synchronize(list(stream.pending))

    with monkeypatch.context() as patch:
        patch.setattr(copy_commands, "move_rows", slowly)
        patch.setattr(StreamManager, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            machine.transfers.copy_now(
                stream, Place(made.start, made), Place(ctypes.addressof(source), None), SIZE
            )
        assert ended
    threads[0].join(PATIENCE_S)
    machine.end()


@pytest.mark.usefixtures("context")
@pytest.mark.parametrize("size", [SIZE, (5 << 20) + 3])
def test_a_source_may_change_as_soon_as_the_call_returns(context, size):
    """By the call that waits, and by the one that stages the source."""
    stream = ok(driver.cuStreamCreate(1))
    device = ok(driver.cuMemAlloc(2 * size))
    source, back = ctypes.create_string_buffer(size), ctypes.create_string_buffer(2 * size)
    where = ctypes.addressof(source)
    ctypes.memset(source, 1, size)
    ok(driver.cuMemcpyHtoD(device, where, size))
    ctypes.memset(source, 2, size)
    ok(driver.cuMemcpyHtoDAsync(int(device) + size, where, size, stream))
    ctypes.memset(source, 3, size)
    ok(driver.cuMemcpyDtoHAsync(ctypes.addressof(back), device, 2 * size, stream))
    assert back.raw == b"\1" * size + b"\2" * size
    ok(driver.cuMemFree(device))
    ok(driver.cuStreamDestroy(stream))
