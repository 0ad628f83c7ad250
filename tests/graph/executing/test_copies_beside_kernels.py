"""Copies from and to ordinary host memory, in graphs: what does not need them runs beside them."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from helpers.driver.held_devices import engine_behind
from helpers.engine_programs.host_programs import failing_programs
from helpers.engine_programs.strategies import settings
from helpers.fuzzing.search import first_difference
from helpers.graphs.recorded_programs import graph_differences
from hypothesis import given

import cudasync as cs
from cudasync.graph import instance, segments

PATIENCE_S = 30
FOUR = np.arange(4, dtype=np.int32)


def differences(program, setting):
    return graph_differences(program, setting, 2, beside=True, devices_too=True)


@given(failing_programs(copies=True), settings())
def test_copies_beside_kernels_give_the_serial_result_and_its_poison(program, setting):
    assert not differences(program, setting)


def backwards(nodes):
    """The planted bug: a segment is pushed before those that it needs."""
    return segments.cut(nodes)[::-1]


def test_segments_in_another_order_are_found(monkeypatch):
    monkeypatch.setattr(instance, "cut", backwards)
    assert first_difference(differences, failing_programs(copies=True), settings())


def download(latch, patience_s):
    """A product is copied to the host while the kernel that needs the product is held."""
    device = latch.device
    x, z = cs.array(FOUR, device=device), cs.zeros(4, np.int32, device=device)
    out = np.zeros(4, np.int32)
    with engine_behind(latch) as engine:
        with cs.graph() as g:
            y = x * 2
            cs.copy(out, y)
            cs.engine().push(latch.hold, reads=y, writes=z, device=device)
        with g.instantiate() as executable:
            executable.launch()
            engine.push(lambda: None, reads=out).wait(patience_s)
            assert out.tolist() == [0, 2, 4, 6]
            latch.release()


def upload(latch, patience_s):
    """A kernel runs while an upload that another kernel needs waits for its data."""
    device = latch.device
    x, y = (cs.zeros(4, np.int32, device=device) for _ in range(2))
    data, gate = FOUR.copy(), threading.Event()
    with cs.Engine() as engine, cs.use(engine):
        with cs.graph() as g:
            place = cs.empty(4, np.int32, device=device)
            cs.copy(place, data)
            y += place
            x += 1
        with g.instantiate() as executable:
            try:
                engine.push(gate.wait, writes=data)
                executable.launch()
                engine.push(lambda: None, reads=x).wait(patience_s)
                assert x.numpy().tolist() == [1] * 4
            finally:
                gate.set()
            assert y.numpy().tolist() == [0, 1, 2, 3]


def behind_a_function(latch, patience_s):
    """A kernel runs while a function that another kernel of its device needs is held."""
    device, gate = latch.device, threading.Event()
    x, y = (cs.zeros(4, np.int32, device=device) for _ in range(2))
    with cs.Engine() as engine, cs.use(engine):
        with cs.graph() as g:
            cs.engine().push(gate.wait, writes=x)
            x += 1
            y += 1
        with g.instantiate() as executable:
            try:
                executable.launch()
                engine.push(lambda: None, reads=y).wait(patience_s)
                assert y.numpy().tolist() == [1] * 4
            finally:
                gate.set()
            assert x.numpy().tolist() == [1] * 4


def across_devices(latch, patience_s):
    """A device gets a value from another, of which a later kernel is held."""
    first, second = latch.device, cs.Device(1)
    x, z = cs.array(FOUR, device=first), cs.zeros(4, np.int32, device=first)
    y = cs.zeros(4, np.int32, device=second)
    with engine_behind(latch) as engine:
        with cs.graph() as g:
            product = x * 2
            cs.copy(y, product)
            cs.engine().push(latch.hold, reads=product, writes=z, device=first)
        with g.instantiate() as executable:
            executable.launch()
            engine.push(lambda: None, reads=y).wait(patience_s)
            assert y.numpy().tolist() == [0, 2, 4, 6]
            latch.release()


PROGRAMS = [
    download,
    upload,
    behind_a_function,
    pytest.param(
        across_devices,
        marks=pytest.mark.skipif(cs.device_count() < 2, reason="no second device"),
    ),
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_work_beside_a_held_copy_or_kernel_does_not_wait_for_it(program, latch):
    program(latch, PATIENCE_S)


@pytest.mark.parametrize("program", PROGRAMS)
def test_segments_by_device_alone_are_found(program, latch, monkeypatch):
    """The planted bug: a device's nodes share segments wherever their order allows it."""
    nothing = lambda nodes, kinds: dict.fromkeys(nodes, (0, 0))  # noqa: E731
    monkeypatch.setattr(segments, "_around", nothing)
    monkeypatch.setattr(segments, "_behind_functions", lambda nodes: set())
    with pytest.raises(TimeoutError):
        program(latch, 0.1)


@pytest.mark.parametrize("count", [1, 3, 10])
def test_each_copy_of_a_chain_of_products_has_its_own_product_before_it(count):
    x = cs.array(FOUR)
    outs = [np.zeros(4, np.int32) for _ in range(count)]
    with cs.graph() as g:
        y = x
        for out in outs:
            y = y * 2
            cs.copy(out, y)
    with g.instantiate(without=("fusion",)) as executable:
        assert len(executable.parts) == 2 * count
        executable.launch().wait()
    assert [out.tolist() for out in outs] == [[0, 2 << n, 4 << n, 6 << n] for n in range(count)]


def test_a_program_without_such_copies_stays_one_launch():
    x, out = cs.array(FOUR), cs.pinned_empty((4,), np.int32)
    with cs.graph() as g:
        for _ in range(5):
            x += 1
            cs.copy(out, x)
    with g.instantiate() as executable:
        assert len(executable.parts) == 1


def test_functions_of_the_host_do_not_divide_the_work_of_a_device():
    xs = [cs.zeros(4, np.int32) for _ in range(5)]
    with cs.graph() as g:
        for x in xs:
            y = x + 1
            cs.engine().push(lambda: None, reads=y)
            x += 1
    with g.instantiate() as executable:
        assert len(executable.parts) == 2


def test_functions_that_need_no_device_do_not_wait_for_one(device, latch):
    x, ran = cs.zeros(4, np.int32, device=device), threading.Event()
    with engine_behind(latch):
        with cs.graph() as g:
            cs.engine().push(latch.hold, writes=x, device=device)
            cs.engine().push(lambda: None, reads=x)
            cs.engine().push(ran.set)
        with g.instantiate() as executable:
            executable.launch()
            assert ran.wait(PATIENCE_S)
            latch.release()


def test_a_launch_has_no_more_than_four_times_the_least_ops():
    """Each kernel needs some of the uploads: to overlap exactly, each would be an op."""
    values = [np.full(4, 1 << number, np.int32) for number in range(6)]
    needed = [c for n in range(1, 7) for c in itertools.combinations(range(6), n)]
    results = [cs.zeros(4, np.int32) for _ in needed]
    with cs.graph() as g:
        places = [cs.empty(4, np.int32) for _ in values]
        for place, data in zip(places, values, strict=True):
            cs.copy(place, data)
        for result, some in zip(results, needed, strict=True):
            for each in some:
                result += places[each]
    with g.instantiate() as executable:
        # Six uploads, and one segment.
        assert len(executable.parts) <= 4 * 7
        executable.launch()
        for result, some in zip(results, needed, strict=True):
            assert result.numpy().tolist() == [sum(1 << each for each in some)] * 4
