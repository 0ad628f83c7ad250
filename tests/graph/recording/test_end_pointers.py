"""Memory of a graph that launches get by its beginning and its end: both are aimed alike."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.driver.memory_without_gaps import memory_without_gaps
from helpers.fuzzing.search import first_difference
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync.graph.passes import memory
from cudasync.graph.retargeting import Aim

# Each adds 1 to the elements from `begin` up to `end`; the names say in which form these come. A
# pair that is no array of the test's changes nothing, so that a planted bug is no fault.
SOURCE = r"""
struct Span { float *begin; float *end; };
struct Sized { int tag; float *end; float *begin; };
__device__ void add(float *begin, float *end) {
    if (end - begin > 512) return;
    for (float *p = begin + threadIdx.x; p < end; p += blockDim.x) *p += 1.0f;
}
extern "C" __global__ void pointers(float *begin, float *end) { add(begin, end); }
extern "C" __global__ void integers(float *begin, unsigned long long end) {
    add(begin, (float *)end);
}
extern "C" __global__ void span(Span s) { add(s.begin, s.end); }
extern "C" __global__ void sized(Sized s) { add(s.begin, s.end); }
extern "C" __global__ void backwards(float *end, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) end[-1 - i] += 1.0f;
}
"""
FORMS = ["pointers", "integers", "both integers", "span", "sized", "backwards"]
# A multiple of every alignment of an allocation, so that neighbours may lie side by side.
SIZE = 512


@pytest.fixture(scope="module")
def kernels():
    return cs.Module.from_cuda(SOURCE)


def add_one(kernels, form, x):
    """Add 1 to all elements of `x`."""
    begin, end = np.uint64(x.ptr), np.uint64(x.ptr + x.nbytes)
    if form == "pointers":
        kernels.kernel("pointers")[1, 32](x, x[x.size :])
    elif form == "integers":
        kernels.kernel("integers")[1, 32](x, end)
    elif form == "both integers":
        kernels.kernel("integers")[1, 32](begin, end)
    elif form == "span":
        kernels.kernel("span")[1, 32](np.array([begin, end], np.uint64))
    elif form == "sized":
        kernels.kernel("sized")[1, 32](np.array([7, end, begin], np.uint64))
    else:
        kernels.kernel("backwards")[1, 32](end, np.int32(x.size))


class Program:
    """A function of two arrays, in steps that take their memory from its beginning to its end.

    A step is the form of a launch and its target: an argument, or a temporary that the program
    makes of an argument and adds to its result.
    """

    def __init__(self, steps):
        self.steps = steps

    def __call__(self, kernels, *arguments):
        total = arguments[0] * 2
        for form, target, at in self.steps:
            x = arguments[at]
            if target == "temporary":
                x = x * 2
            add_one(kernels, form, x)
            total = total * 2 + x
        return total

    def __repr__(self):
        return f"Program({self.steps})"


def programs(*forms):
    step = st.tuples(
        st.sampled_from(forms), st.sampled_from(["temporary", "argument"]), st.integers(0, 1)
    )
    return st.lists(step, min_size=1, max_size=6).map(Program)


def arrays(first):
    return [cs.array(np.full(SIZE, first + at, np.float32)) for at in range(4)]


def differences(program, kernels):
    """Launch the program for other arrays than it was recorded with, and as a traced function.
    Returns the differences from the same calls without a graph, also in arrays that no call
    names."""
    # Memory that is taken anew may lie beside memory that was taken just before.
    cs.empty_cache()
    one, other = arrays(1), arrays(1)
    expected = [program(kernels, *one[:2]), program(kernels, *one[2:]), *one]
    with cs.graph() as g:
        a, b = g.argument("a", other[0]), g.argument("b", other[1])
        result = program(kernels, a, b)
    exe = g.instantiate()
    bystanders = arrays(50)
    exe.launch()
    first = result.numpy()
    exe.update(a=other[2], b=other[3])
    exe.launch()
    found = [first, result.numpy(), *other]
    traced = cs.graph_function(lambda x, y: program(kernels, x, y))
    again = arrays(1)
    found += [traced(*again[:2]), traced(*again[2:]), *again]
    expected += [*expected, *arrays(50)]
    found += bystanders
    return [
        at
        for at, (right, seen) in enumerate(zip(expected, found, strict=True))
        if not np.array_equal(np.asarray(_of(right)), np.asarray(_of(seen)))
    ]


def _of(x):
    return x.numpy() if hasattr(x, "numpy") else x


@given(programs(*FORMS))
def test_a_graph_aims_the_ends_of_its_memory_as_their_beginnings(kernels, program):
    assert not differences(program, kernels)


@given(programs(*FORMS))
def test_borders_of_two_allocations_are_aimed_correctly(kernels, program):
    with memory_without_gaps():
        assert not differences(program, kernels)


@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (Aim, "word", lambda self, word, is_value: self.address(word)),
        (memory, "is_unclear", lambda *_: False),
    ],
    ids=["the end stays", "a border belongs to the upper side"],
)
def test_a_planted_bug_is_found(kernels, owner, name, bug, monkeypatch):
    monkeypatch.setattr(owner, name, bug)
    with memory_without_gaps():
        assert first_difference(differences, programs("integers", "span"), st.just(kernels))
