"""Products as BLAS calls: a call of GEMM, by its definition, equals NumPy's matmul.

GEMM is written here from the BLAS standard, over flat memory, with its rules for arguments. It uses
no code of `cudasync`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.arrays.layouts import Laid, laid
from helpers.fuzzing.search import first_difference
from hypothesis import given
from hypothesis import strategies as st

from cudasync import xp
from cudasync.array.products import blas_form
from cudasync.array.products.problem import problem_of
from cudasync.driver.blas.gemm import PLAIN, TRANSPOSED


def element(memory, factor, row, column, matrix):
    """`op(M)[row, column]` of a matrix in column-major order."""
    if factor.operation == TRANSPOSED:
        row, column = column, row
    return memory[row + column * factor.leading + matrix * factor.stride]


def gemm(call, a, b):
    """The flat memory of C. It starts as NaN, because beta is 0."""
    assert call.a.leading >= max(1, call.m if call.a.operation == PLAIN else call.k)
    assert call.b.leading >= max(1, call.k if call.b.operation == PLAIN else call.n)
    assert call.leading >= max(1, call.m)
    c = np.full(call.count * call.m * call.n, np.nan)
    for matrix in range(call.count):
        for i in range(call.m):
            for j in range(call.n):
                at = i + j * call.leading + matrix * call.stride
                c[at] = sum(
                    element(a, call.a, i, deep, matrix) * element(b, call.b, deep, j, matrix)
                    for deep in range(call.k)
                )
    return c


def reached(x, base):
    """The memory between an array's first and last element."""
    first = x.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    last = sum((n - 1) * step for n, step in zip(x.shape, x.strides, strict=True))
    size = x.itemsize
    return base.reshape(-1)[first // size : (first + last) // size + 1]


def form_of(*arrays):
    """The call for these arrays, which depends on their layouts alone."""
    return blas_form.blas_form(problem_of(*(each.layout for each in arrays)))


def wrong(pair):
    """The fault in the call for these operands; None if it is right, or if there is no call."""
    bases = [each.base(np.dtype("f8"), seed) for seed, each in enumerate(pair)]
    hosts = [each.of(base) for each, base in zip(pair, bases, strict=True)]
    call = form_of(*(each.of(xp.asarray(base)) for each, base in zip(pair, bases, strict=True)))
    if call is None:
        return None
    left, right = (reached(host, base) for host, base in zip(hosts, bases, strict=True))
    expected = np.matmul(*hosts)
    found = gemm(call, right, left).reshape(expected.shape)
    return None if found.tolist() == expected.tolist() else f"{pair}: {call}"


LENGTHS = st.sampled_from([1, 2, 3, 5])
STACKS = [((), ()), ((), ()), ((2,), (2,)), ((2, 3), ()), ((3,), (1,)), ((2, 1), (3,)), ((), (4,))]


@st.composite
def pairs(draw):
    """Two operands in any layout, including vectors and stacks."""
    rows, depth, columns = draw(LENGTHS), draw(LENGTHS), draw(LENGTHS)
    stacks = draw(st.sampled_from(STACKS))
    shapes = [
        draw(st.sampled_from([(*stacks[0], rows, depth), (depth,)])),
        draw(st.sampled_from([(*stacks[1], depth, columns), (depth,)])),
    ]
    # The more frequent layouts have a call.
    usual = st.sampled_from(["whole", "whole", "whole", "inner"])
    found = []
    for shape in shapes:
        axes = tuple(draw(usual) for _ in shape)
        order = draw(st.sampled_from([tuple(range(len(shape))), (*range(len(shape) - 2), -1, -2)]))
        as_usual = Laid(shape, axes, tuple(at % len(shape) for at in order[: len(shape)]), 0)
        found.append(as_usual if draw(st.booleans()) else draw(laid(shape, broadcasts=False)))
    return found


@given(pairs())
def test_a_call_computes_the_product_and_reads_nothing_else(pair):
    assert wrong(pair) is None


def found_by(plant, monkeypatch):
    """True if the same search finds a bug."""
    plant(monkeypatch)

    def differences(pair):
        try:
            found = wrong(pair)
        except (AssertionError, IndexError) as error:
            found = error
        return [] if found is None else [found]

    return bool(first_difference(differences, pairs()))


def in_factors(change):
    """A bug that changes every factor."""

    def plant(monkeypatch):
        real = blas_form._factor

        def planted(*given):
            factor = real(*given)
            return factor and change(factor)

        monkeypatch.setattr(blas_form, "_factor", planted)

    return plant


def a_factor_for_both(monkeypatch):
    """The planted bug: the operands are not swapped."""
    real = blas_form._gemm

    def planted(*given):
        call = real(*given)
        return call and replace(call, a=call.b, b=call.a)

    monkeypatch.setattr(blas_form, "_gemm", planted)


def every_stack_is_one(monkeypatch):
    """The planted bug: only one axis of a stack counts."""
    real = blas_form.collapsed

    def planted(shape, strides):
        return real(shape[-1:], [each[-1:] for each in strides])

    monkeypatch.setattr(blas_form, "collapsed", planted)


PLANTED = {
    "never transposed": in_factors(lambda factor: replace(factor, operation=PLAIN)),
    "a leading dimension too short": in_factors(lambda f: replace(f, leading=f.leading - 1)),
    "no stride": in_factors(lambda factor: replace(factor, stride=0)),
    "not changed over": a_factor_for_both,
    "stacks of one axis": every_stack_is_one,
}


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
def test_a_planted_bug_is_found(plant, monkeypatch):
    assert found_by(plant, monkeypatch)


def array(*shape, dtype="f4"):
    return xp.zeros(shape, dtype=np.dtype(dtype))


CALLS = {
    "as it is": lambda: (array(3, 4), array(4, 5)),
    "both turned": lambda: (array(4, 3).T, array(5, 4).T),
    "a part of the columns": lambda: (array(3, 9)[:, 2:6], array(4, 9)[:, 1:6]),
    "every other row": lambda: (array(6, 4)[::2], array(4, 5)),
    "vectors": lambda: (array(4), array(4)),
    "a column": lambda: (array(3, 4), array(9, 4)[2]),
    "a stack": lambda: (array(2, 3, 4), array(2, 4, 5)),
    "a stack of two axes": lambda: (array(2, 7, 3, 4), array(2, 7, 4, 5)),
    "a stack by one": lambda: (array(2, 7, 3, 4), array(4, 5)),
    "one by a stack": lambda: (array(3, 4), array(7, 4, 5)),
    "float64": lambda: (array(3, 4, dtype="f8"), array(4, 5, dtype="f8")),
}
NO_CALLS = {
    "integers": lambda: (array(3, 4, dtype="i4"), array(4, 5, dtype="i4")),
    "float16": lambda: (array(3, 4, dtype="f2"), array(4, 5, dtype="f2")),
    "two dtypes": lambda: (array(3, 4), array(4, 5, dtype="f8")),
    "rows backwards": lambda: (array(3, 4)[::-1], array(4, 5)),
    "gaps both ways": lambda: (array(6, 8)[::2, ::2], array(4, 5)),
    "a row for all": lambda: (xp.broadcast_to(array(4), (3, 4)), array(4, 5)),
    "two strides": lambda: (array(2, 1, 3, 4), array(7, 4, 5)),
}


@pytest.mark.parametrize("operands", CALLS.values(), ids=CALLS)
def test_what_blas_can_say_is_one_call(operands):
    assert form_of(*operands()) is not None


@pytest.mark.parametrize("operands", NO_CALLS.values(), ids=NO_CALLS)
def test_what_blas_can_not_say_is_none(operands):
    assert form_of(*operands()) is None


def test_the_rows_of_a_stack_by_one_matrix_are_those_of_one():
    call = form_of(array(2, 7, 3, 4), array(4, 5))
    assert (call.m, call.n, call.k, call.count) == (5, 2 * 7 * 3, 4, 1)


def test_sizes_beyond_31_bits_have_no_call():
    problem = problem_of(array(3, 4).layout, array(4, 5).layout)
    assert blas_form.blas_form(replace(problem, rows=1 << 31)) is None
    steps = (((1 << 31), 1), problem.strides[1])
    assert blas_form.blas_form(replace(problem, strides=steps)) is None
