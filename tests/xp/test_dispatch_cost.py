"""The cost of an eager operation: our bytecodes, and driver calls."""

from __future__ import annotations

from statistics import median
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.concurrency.bytecode_freezer import PATIENCE_S, Freezer, end_tracing, is_library
from helpers.driver.call_counts import counted_calls

import cudasync as cs
from cudasync import xp
from cudasync.array.elementwise import layouts

ROUNDS = 9
N = 64
ADD = """
extern "C" __global__ void add(const float* x, const float* y, float* z, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + y[i];
}
"""


@pytest.fixture
def engine():
    with cs.Engine(workers=1) as engine:
        yield engine
    end_tracing()


def cost(call) -> float:
    """The bytecodes of one call in the steady state. Its result dies before the next call."""
    for _ in range(3):
        call()
    cs.waitall(PATIENCE_S)
    found = []
    for _ in range(ROUNDS):
        freezer = Freezer(None, is_library)
        with freezer:
            call()
        cs.waitall(PATIENCE_S)
        found.append(freezer.points)
    return median(found)


def calls_of_both():
    x, y, z = xp.ones(N), xp.ones(N), xp.ones(N)
    kernel = cs.Module.from_cuda(ADD).kernel("add")
    n = np.uint32(N)
    return lambda: kernel[1, N](x, y, z, n), lambda: x + y


def test_an_eager_sum_costs_at_most_half_as_much_again_as_a_kernel_call(engine):
    by_hand, eager = calls_of_both()
    assert cost(eager) <= 1.5 * cost(by_hand)


def test_a_sum_that_is_planned_anew_each_time_is_found(engine, monkeypatch):
    by_hand, eager = calls_of_both()
    usual = cost(by_hand)
    monkeypatch.setattr(layouts, "_layouts", {})
    x, y = xp.ones(N), xp.ones(N)

    def anew():
        x._layout = None
        layouts._layouts.clear()
        return x + y

    assert cost(eager) <= 1.5 * usual < cost(anew)


def test_an_eager_sum_is_one_launch_and_at_most_one_event(engine):
    _, eager = calls_of_both()
    # The sums are independent: until many blocks are there, a result has one of its own.
    for _ in range(80):
        eager()
    cs.waitall(PATIENCE_S)
    with counted_calls() as calls:
        for _ in range(20):
            eager()
    assert calls["cuLaunchKernel"] == 20
    assert calls["cuEventRecord"] <= 20
    assert not [name for name in calls if "Alloc" in name or "Free" in name or "Copy" in name]
    cs.waitall(PATIENCE_S)


# Our bytecodes for the question whether a trace is right; a launch comes on top of it. Measured on
# Python 3.11: 75 if nothing is outside, 125 however much is.
NOTHING, MUCH = 80, 140


def cost_of_guards(f):
    traces = f._known if hasattr(f, "_known") else f._traces
    ((key, (trace,)),) = traces._known.items()
    try:
        with (freezer := Freezer(None, lambda path: "guards" in path)):
            assert traces.find(key, ()) is trace.made
        return freezer.points
    finally:
        end_tracing()


@pytest.mark.parametrize("decorate", [cs.elementwise, cs.graph_function])
def test_guards_cost_the_same_however_much_is_outside(decorate):
    x = xp.ones(2, device="cpu")
    objects = [SimpleNamespace(a=1.0, b=[2.0]) for _ in range(20)]
    one, table = objects[0], {"k": 2.0}
    costs = []
    for f in (
        decorate(lambda x: x + x),
        decorate(lambda x: x * one.a),
        decorate(lambda x: x * table["k"] * sum(each.a * each.b[0] for each in objects)),
    ):
        f(x)
        costs.append(cost_of_guards(f))
    nothing, *others = costs
    assert nothing <= NOTHING
    assert max(others) <= MUCH, costs
