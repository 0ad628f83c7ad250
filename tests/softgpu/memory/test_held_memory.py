"""The freed memory in quarantine is bounded, in every way to free memory."""

from __future__ import annotations

import ctypes
import mmap
from random import Random

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver.call_results import ok
from helpers.repository.subprocesses import run_text
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync.array.copies import staging
from cudasync.driver.memory.device_memory import held_by_software
from cudasync.softgpu.core.machine import Machine
from cudasync.softgpu.core.memory.allocation_table import MemoryKind
from cudasync.softgpu.core.memory.arena import Arena
from cudasync.softgpu.core.memory.quarantine import Quarantine
from cudasync.softgpu.interface.poison import poison_pages

MIB = 1 << 20
SIZE = 8 * MIB
MOST = 64 << 10


def small_machine():
    machine = Machine(devices=2, total_bytes=1 << 20, held_bytes=MOST)
    machine.is_initialized = True
    return machine


def enter(machine, number):
    machine.push(machine.retain_primary(machine.device(number)))


sizes = st.integers(1, MOST // 2)
actions = st.tuples(
    st.sampled_from(["sync", "async", "host", "free", "free", "free", "wait"]),
    st.integers(0, 1),
    sizes,
)


@given(st.lists(actions, max_size=80))
def test_what_is_held_is_bounded_after_every_call(steps):
    """On two devices and in host memory, by synchronous and stream-ordered frees."""
    machine = small_machine()
    memory, live, streams = machine.memory, [], []
    for number in range(2):
        enter(machine, number)
        streams.append(machine.streams.create(1))
        machine.pop()
    for what, number, size in steps:
        enter(machine, number)
        if what == "sync":
            live.append((number, memory.allocate_device(size), None))
        elif what == "async":
            live.append((number, memory.allocate_async(size, streams[number]), streams[number]))
        elif what == "host":
            live.append((number, memory.allocate_host(size, MemoryKind.PINNED), None))
        elif what == "wait":
            machine.streams.synchronize(streams[number])
        elif live:
            owner, made, stream = live.pop(size % len(live))
            enter(machine, owner)
            if made.kind is MemoryKind.PINNED:
                memory.free_host(made.start)
            elif stream is None:
                memory.free(made.start)
            else:
                memory.free_async(made.start, stream)
            machine.pop()
        machine.pop()
        held = machine.quarantine
        assert held.held_bytes <= MOST
        assert held.awaiting_bytes <= MOST // 4
        made = [each for d in machine.devices for each in d.memory.of_context(d.primary)]
        assert held.awaiting_bytes == sum(each.size_bytes for each in made if each.is_freeing)


def test_frees_that_nobody_waits_for_are_run_when_they_hold_much():
    machine = small_machine()
    enter(machine, 0)
    stream = machine.streams.create(1)
    for _ in range(100):
        made = machine.memory.allocate_async(4096, stream)
        machine.memory.free_async(made.start, stream)
        assert machine.quarantine.held_bytes <= MOST
    # The number of bytes in use stays far below the sum of all requests.
    assert machine.devices[0].memory.arena.used_bytes < MOST // 2


def test_frees_that_can_not_run_wait_and_are_bounded_again_afterwards():
    machine = small_machine()
    enter(machine, 0)
    stream = machine.streams.create(1)
    flag = machine.memory.allocate_device(4)
    ctypes.memset(flag.start, 0, 4)
    machine.streams.wait_value(stream, flag.start, 1, 0, 4)
    for _ in range(100):
        made = machine.memory.allocate_async(4096, stream)
        machine.memory.free_async(made.start, stream)
    assert machine.quarantine.awaiting_bytes == 100 * 4096
    ctypes.memset(flag.start, 1, 4)
    machine.streams.synchronize(stream)
    assert machine.quarantine.awaiting_bytes == 0
    assert machine.quarantine.held_bytes <= MOST


def test_frees_that_a_reset_drops_are_not_counted():
    machine = small_machine()
    enter(machine, 0)
    stream = machine.streams.create(1)
    for _ in range(3):
        made = machine.memory.allocate_async(4096, stream)
        machine.memory.free_async(made.start, stream)
    assert machine.quarantine.awaiting_bytes == 3 * 4096
    machine.reset_primary(machine.device(0))
    assert machine.quarantine.awaiting_bytes == 0
    assert machine.devices[0].memory.arena.used_bytes == 0


def resident(arena, start, size_bytes):
    """The number of resident pages among those that lie wholly in the block."""
    first = arena.base + -(-(start - arena.base) // mmap.PAGESIZE) * mmap.PAGESIZE
    count = (start + size_bytes - first) // mmap.PAGESIZE
    states = (ctypes.c_ubyte * count)()
    libc = ctypes.CDLL(None, use_errno=True)
    length = ctypes.c_size_t(count * mmap.PAGESIZE)
    assert libc.mincore(ctypes.c_void_p(first), length, states) == 0
    return sum(state & 1 for state in states)


def test_pages_are_the_systems_again_once_the_bound_is_reached():
    """This includes small blocks, which share pages."""
    arena = Arena(64 * MIB, Quarantine(1 * MIB))
    random = Random(7)
    blocks = [
        (arena.reserve(size), size) for size in (random.randint(1, 9000) for _ in range(4000))
    ]
    for block in blocks:
        poison_pages(*block)
    extent = max(start + size for start, size in blocks) - arena.base
    pages = resident(arena, arena.base, extent)
    assert pages >= extent // mmap.PAGESIZE - 1
    for block in random.sample(blocks, len(blocks)):
        arena.release(*block)
    held = arena.quarantine.held_bytes
    assert held <= 1 * MIB
    # Quarantined blocks lie scattered, and each may keep the pages at its ends.
    assert resident(arena, arena.base, extent) * mmap.PAGESIZE <= held + 2 * 600 * mmap.PAGESIZE
    while arena.quarantine.evict():
        pass
    arena.cool(arena.warm.size_bytes)
    assert resident(arena, arena.base, extent) == 0


def test_a_block_that_was_let_go_is_handed_out_with_its_pages():
    arena = Arena(64 * MIB, Quarantine(4 * MIB))
    for _ in range(50):
        start = arena.reserve(MIB)
        poison_pages(start, MIB)
        arena.release(start, MIB)
    assert arena.reserve(MIB) < arena.base + 6 * MIB


def ordered_buffer(size_bytes=SIZE):
    stream = cs.Stream()
    cs.DeviceBuffer(size_bytes, stream=stream).close(stream)


def managed():
    cs.Device(0).use()
    ok(driver.cuMemFree(ok(driver.cuMemAllocManaged(SIZE, 1))))


def graph():
    cs.Device(0).use()
    made = ok(driver.cuGraphCreate(0))
    params = driver.CUDA_MEM_ALLOC_NODE_PARAMS()
    params.poolProps.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    params.poolProps.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    params.bytesize = SIZE
    node = ok(driver.cuGraphAddMemAllocNode(made, [], 0, params))
    ok(driver.cuGraphAddMemFreeNode(made, [node], 1, int(params.dptr)))
    executable = ok(driver.cuGraphInstantiate(made, 0))
    stream = cs.Stream()
    ok(driver.cuGraphLaunch(executable, stream.handle))
    stream.synchronize()
    ok(driver.cuGraphExecDestroy(executable))
    ok(driver.cuGraphDestroy(made))


HOST = np.ones(SIZE, np.uint8)
LOOPS = {
    "arrays that are read": lambda: cs.array(HOST).numpy(),
    "arrays that nobody reads": lambda: cs.array(HOST),
    "zeros": lambda: cs.zeros(SIZE, np.uint8),
    "many small arrays": lambda: [cs.array(HOST[: SIZE // 16]).numpy() for _ in range(16)],
    "pinned arrays": lambda: cs.pinned_empty(SIZE, np.uint8),
    "buffers": lambda: cs.DeviceBuffer(SIZE).close(),
    "buffers in stream order": ordered_buffer,
    "large buffers": lambda: ordered_buffer(100 * MIB),
    "managed memory": managed,
    "graphs with memory": graph,
}


@pytest.fixture
def clean():
    """Free what the tests left in the middle of memory: other tests need contiguous memory."""
    yield
    cs.waitall()
    cs.Device(0).reset()


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("what", LOOPS)
def test_a_loop_levels_off(what):
    """Freed memory and staging buffers stay bounded; memory in use beside them is little."""
    for _ in range(40):
        LOOPS[what]()
        held, most = held_by_software()
        assert held <= most
        assert staging.idle_bytes() <= staging.KEPT_BYTES
    memory = cs.Device(0).memory()
    assert memory.held_bytes <= most
    assert memory.total_bytes - memory.free_bytes <= most


def test_the_bound_is_what_the_environment_says():
    text = "import cudasync as cs, numpy as np\n"
    text += "for _ in range(40): cs.array(np.ones(1 << 20, np.uint8)).numpy()\n"
    text += "print(cs.Device(0).memory().held_bytes)"
    for most, expected in (("8", 8 << 20), ("0", 1 << 20)):
        environment = {"CUDASYNC_SOFTGPU_HELD": most, "CUDASYNC_DEVICE": "soft"}
        code, printed = run_text(text, 60, **environment)
        assert code == 0, printed
        assert int(printed) <= expected + (2 << 20)


def test_a_device_has_as_much_memory_as_the_environment_says():
    text = "import cudasync as cs\nprint(cs.Device(0).memory().total_bytes)\n"
    text += "cs.DeviceBuffer(5 << 30)\n"
    large = {"CUDASYNC_SOFTGPU_MEMORY": "6144", "CUDASYNC_DEVICE": "soft"}
    assert run_text(text, 60, **large) == (0, f"{6 << 30}\n")
    code, printed = run_text(text, 60, **{**large, "CUDASYNC_SOFTGPU_MEMORY": "64"})
    assert code == 1
    assert "OUT_OF_MEMORY" in printed
