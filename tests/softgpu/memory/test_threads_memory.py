"""Several threads use the allocation tables at once: no entry is lost, and no look-up fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers.concurrency.thread_crew import together
from helpers.driver.machines import CREW, at_once, new_machine

from cudasync.softgpu.core.driver_types.memory_locations import DEVICE, Location
from cudasync.softgpu.core.memory.allocation_table import MemoryKind
from cudasync.softgpu.core.memory.memory_pools import PINNED
from cudasync.softgpu.core.memory.stream_ordered_allocation import Appear
from cudasync.softgpu.interface import poison

ROUNDS = 300
PAGE = 4096
THRESHOLD, RESERVED, USED = 4, 5, 7
READ_MOSTLY = 1


@pytest.fixture
def machine():
    return new_machine(total_bytes=1 << 26, devices=2)


@pytest.fixture
def table(machine):
    return machine.device(0).memory


def test_an_address_is_found_and_reported_while_others_allocate_and_free(machine, table):
    memory, context = machine.memory, machine.context()
    everything = [memory.allocate_device(64) for _ in range(64)]
    kept, between = everything[::2], everything[1::2]
    done = []

    def work(index):
        if index < CREW // 2:
            for _ in range(ROUNDS):
                memory.end(between[index])
                between[index] = memory.allocate_device(64)
            done.append(index)
        while len(done) < CREW // 2:
            for each in kept:
                assert memory.find(each.start + 8) is each
            # Another thread may allocate there meanwhile.
            address = between[0].start
            found = table.find_freed(address)
            assert found is None or found.start <= address < found.end
            assert table.nearest(kept[-1].end + 8) is not None
            assert set(kept) <= set(table.live())
            assert set(kept) <= set(table.of_context(context))
            assert table.used_by(MemoryKind.DEVICE) >= 64 * len(kept)

    at_once(machine, work)


def test_a_launch_may_touch_what_came_before_it_and_not_what_went(machine, table):
    """Stream-ordered memory appears and disappears on the threads that execute commands."""
    context = machine.context()

    def work(_index):
        stream = machine.streams.create(1)
        for _ in range(ROUNDS):
            made = machine.memory.allocate(table, 64, MemoryKind.POOL, live=False)
            Appear(stream, machine.memory, made).run()
            assert (made.start, made.end) in machine.memory.snapshot(context).ranges()
            machine.memory.end(made)
            assert (made.start, made.end) not in machine.memory.snapshot(context).ranges()

    at_once(machine, work)


def test_each_change_of_a_table_has_a_number_of_its_own(machine, table):
    """Otherwise an old snapshot would pass for the current one."""
    rooms = [machine.memory.allocate(table, 64, MemoryKind.POOL, live=False) for _ in range(CREW)]
    stream = machine.streams.create(1)
    before = table.version

    def work(index):
        come = Appear(stream, machine.memory, rooms[index])
        for _ in range(150 * ROUNDS):
            come.run()

    at_once(machine, work)
    assert table.version == before + 150 * ROUNDS * CREW


def test_what_is_first_advised_by_two_threads_at_once_is_kept(machine):
    place = Location(DEVICE, 0)
    rooms = [machine.memory.allocate_host(2 * PAGE, MemoryKind.MANAGED) for _ in range(10 * ROUNDS)]

    def work(index):
        for room in rooms:
            machine.managed.advise(room.start + index * PAGE, PAGE, READ_MOSTLY, place)

    at_once(machine, work, 2)
    assert all(machine.managed.attribute(each.start, 2 * PAGE, READ_MOSTLY) for each in rooms)


def test_a_pool_holds_what_is_in_use_however_it_is_trimmed_and_set(machine):
    pools, pool = machine.pools, machine.device(0).pool
    made = [[] for _ in range(CREW)]

    def work(index):
        stream = machine.streams.create(1)
        for turn in range(ROUNDS):
            made[index].append(machine.memory.allocate_async(64, stream).start)
            for keep in range(20):
                pools.set_attribute(pool, THRESHOLD, 64 * turn)
                pools.trim(pool, keep)
                assert pools.attribute(pool, RESERVED) >= 64 * len(made[index])

    at_once(machine, work)
    assert pools.attribute(pool, USED) == pools.attribute(pool, RESERVED) == 64 * CREW * ROUNDS


def test_who_may_use_pools_is_what_was_said_last_also_of_other_pools(machine):
    """Kernels see the granted access, although several threads grant it at once."""
    pools = [machine.pools.create(PINNED, Location(DEVICE, 1), 0, 0) for _ in range(CREW)]
    memory = [machine.memory.allocate(machine.device(1).memory, 64, each.kind) for each in pools]
    for made, pool in zip(memory, pools, strict=True):
        made.pool = pool
    here = Location(DEVICE, 0)

    def work(index):
        place = memory[index].start, memory[index].end
        for turn in range(ROUNDS):
            access = 3 * (turn % 2)
            machine.pools.set_access(pools[index], [(here, access)])
            ranges = machine.memory.snapshot(machine.context()).ranges()
            assert (place in ranges) == bool(access)

    at_once(machine, work)


def test_the_poison_of_large_blocks_is_one_file(monkeypatch):
    def files():
        links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        return sum(
            "cudasync poison" in os.readlink(each) for each in links if Path(each).is_symlink()
        )

    before = files()
    monkeypatch.setattr(poison, "_file", made := [])
    together(*[poison._file_of_poison] * CREW)
    assert files() == before + 1
    os.close(made[0])


def test_what_graphs_have_in_use_is_counted_whoever_takes_it_and_lets_go(machine):
    resources, pool = machine.graphs.resources, machine.device(0).pool
    use = resources.use(0)
    works = [resources.allocation(64, pool, b"") for _ in range(CREW)]

    def work(index):
        memory = works[index].memory
        for _ in range(10 * ROUNDS):
            memory.map()
            memory.holders.append(None)
            memory.leave()

    at_once(machine, work)
    assert (use.get(0), [len(each.memory.holders) for each in works]) == (0, [1] * CREW)


def test_memory_of_graphs_that_threads_launch_and_end_goes_with_them(machine):
    graphs = machine.graphs
    use = graphs.resources.use(0)

    def work(_index):
        stream = machine.streams.create(1)
        for _ in range(ROUNDS // 3):
            graph = graphs.create(0)
            made = graphs.resources.allocation(64, machine.device(0).pool, b"")
            node = graphs.add(graph, made, ())
            free = graphs.resources.free(graph, made.memory.allocation.start)
            graphs.add(graph, free, [(node, (0, 0, 0))])
            executable = machine.executables.instantiate(graph, 0)
            executable.launch(stream)
            graphs.destroy(graph.handle)
            # Another thread may be executing the end of the launch.
            machine.executables.destroy(executable.handle)
            machine.streams.synchronize(stream)

    at_once(machine, work)
    use.trim()
    assert (use.get(0), use.get(2)) == (0, 0)
    assert machine.device(0).memory.live() == []
    assert not machine.device(0).memory.used_by(MemoryKind.POOL)
