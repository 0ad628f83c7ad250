"""The contenders of bench_overlap: commands placed by hand, and programs with right results."""

from __future__ import annotations

from contextlib import ExitStack

import bench_overlap
import pytest

import cudasync as cs
from bench.overlap.placed import Placed
from bench.overlap.programs import all_programs
from cudasync.experiments.clocks import device_clock_is_wall_clock
from cudasync.profile.record import Dependency, Record

KERNEL_US = 34.0
COPY_BYTES = 1 << 16


def program(name):
    (found,) = (
        each for each in all_programs(lambda name, small, large: small) if each.name == name
    )
    return found


def kernel(number, *before, device=0):
    made = Record(number, f"k{number}", "kernel", "", 0.0, device, start_us=0.0, end_us=KERNEL_US)
    made.before = [Dependency(each, "RAW", "x") for each in before]
    return made


def copy(number, kind, *before):
    made = Record(number, f"c{number}", kind, "", 0.0, 0, start_us=0.0, end_us=0.0)
    made.size_bytes = COPY_BYTES
    made.before = [Dependency(each, "RAW", "x") for each in before]
    return made


def kernels_long(records, most=None):
    """The time of these commands by the virtual clock, in kernels' times."""
    if device_clock_is_wall_clock():
        pytest.skip("the device has no virtual clock")
    with ExitStack() as closing:
        found = Placed(closing, records, most=most).run() * 1e6 / KERNEL_US
    return pytest.approx(found, rel=1e-3)


def test_independent_kernels_by_hand_take_the_time_of_one():
    assert kernels_long([kernel(each) for each in range(12)]) == 1


def test_independent_kernels_on_few_streams_share_these():
    assert kernels_long([kernel(each) for each in range(12)], most=4) == 3
    assert kernels_long([kernel(each) for each in range(12)], most=1) == 12


def test_what_depends_comes_after_it_on_whichever_stream():
    """A chain of three and one kernel beside it; then one that needs both, on the short one's."""
    first = kernel(0)
    second = kernel(1, first)
    third = kernel(2, second)
    beside = kernel(3)
    assert kernels_long([first, second, third, beside, kernel(4, third, beside)]) == 4


def test_a_kernel_that_only_overwrites_does_not_wait():
    first = kernel(0)
    second = kernel(1)
    second.before = [Dependency(first, "WAR", "memory that was used again")]
    assert kernels_long([first, second]) == 1


def test_a_function_of_the_host_stands_between_its_commands():
    first = kernel(0)
    between = Record(1, "f", "host", "", 0.0)
    between.before = [Dependency(first, "RAW", "x")]
    assert kernels_long([first, between, kernel(2, between), kernel(3)]) == 2


def test_copies_of_one_direction_share_a_stream():
    """And copies of the other direction run beside them."""
    pair = [copy(0, "HtoD"), copy(1, "HtoD"), copy(2, "DtoH"), copy(3, "DtoH")]
    alone = [copy(0, "HtoD")]
    with ExitStack() as closing:
        one, four = (Placed(closing, each).run() for each in (alone, pair))
    assert four == pytest.approx(2 * one, rel=1e-2)


def test_what_blocks_its_thread_is_enqueued_behind_what_does_not():
    """A copy of ordinary memory, after a long chain and before a kernel that needs none of it."""
    chain = [kernel(0)]
    for number in range(1, 4):
        chain.append(kernel(number, chain[-1]))
    blocking = copy(4, "DtoH", chain[-1])
    blocking.place = "device 0 pageable"
    blocking.size_bytes = 0
    assert kernels_long([*chain, blocking, kernel(5)]) == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize(
    "name", [each.name for each in all_programs(lambda name, small, large: small)]
)
def test_a_programs_results_are_those_of_the_serial_engine(name):
    """Eagerly and as a graph, each time."""
    chosen = program(name)
    if chosen.devices > cs.device_count():
        pytest.skip("needs two devices")
    with cs.Engine("serial"):
        right = bench_overlap.checksum_of(
            [bench_overlap.values(each) for each in chosen.run(*chosen.prepare())]
        )
    with ExitStack() as closing:
        ways = [bench_overlap.Eager(closing, chosen), bench_overlap.Graph(closing, chosen)]
        if chosen.looped is not None:
            ways.append(bench_overlap.Graph(closing, chosen, has_blocks=True))
        assert [each.checksum() for each in ways for _ in range(2)] == [right] * 2 * len(ways)


def test_a_placement_that_forgets_an_event_is_found(monkeypatch):
    """The planted bug of this file: streams do not wait for each other."""
    monkeypatch.setattr(cs.Stream, "wait", lambda stream, event: None)
    with pytest.raises(AssertionError):
        test_what_depends_comes_after_it_on_whichever_stream()
