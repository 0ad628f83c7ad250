"""Expressions as values: substitution, names, and every form of kernel for a layout."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from helpers.arrays.layouts import SHAPES, Laid, laid
from hypothesis import given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync.array.dtypes.supported import FLOAT16, FLOAT32, FLOAT64, INT8, INT32
from cudasync.array.elementwise import compilation
from cudasync.array.elementwise.operation import Operation
from cudasync.array.expressions import kernel as kernels
from cudasync.array.expressions.on_host import compute
from cudasync.array.expressions.tree import (
    Cast,
    Index,
    Input,
    Scalar,
    apply,
    cast,
    leaves,
    name_of,
    substitute,
)
from cudasync.array.functions.table import FUNCTIONS

# Nearly every example compiles a kernel of its own.
FEWER = settings(max_examples=settings.default.max_examples // 4)

X, Y = Input(0, FLOAT32), Input(1, FLOAT32)
SUM = apply(FUNCTIONS["add"], X, Y)


def run(tree, *arrays):
    return Operation("tree", lambda operands: tree)(arrays, sys._getframe()).numpy()


def test_equal_trees_are_one_key_and_others_are_not():
    assert {SUM: 1}[apply(FUNCTIONS["add"], X, Y)] == 1
    assert apply(FUNCTIONS["add"], Y, X) != SUM
    assert apply(FUNCTIONS["subtract"], X, Y) != SUM


def test_a_cast_to_what_is_there_already_is_nothing():
    assert cast(X, FLOAT32) is X
    assert cast(X, FLOAT64) == Cast(X, FLOAT64)


def test_a_tree_takes_in_others_in_the_place_of_its_operands():
    product = apply(FUNCTIONS["multiply"], X, Scalar(1, FLOAT32))
    joined = substitute(product, [SUM, Input(2, FLOAT32)])
    assert [leaf.position for leaf in leaves(joined)] == [0, 1, 2]
    assert name_of(joined) == "multiply_add"
    hosts = [np.float32([1, 2, 3]), np.float32([10, 20, 30]), np.float32([2, 2, 2])]
    assert run(joined, *map(cs.array, hosts)).tolist() == [22, 44, 66]


def test_an_operand_that_stands_twice_is_read_once():
    tree = apply(FUNCTIONS["multiply"], SUM, SUM)
    text = kernels.source(tree, kernels.LayoutClass(1, False, False, (1, 1, 1)))
    assert text.count("p0[") == 1
    assert text.count("v0 + v1") == 1


def test_a_fused_tree_of_float16_rounds_where_separate_calls_do():
    a, b = Input(0, FLOAT16), Input(1, FLOAT16)
    tree = apply(FUNCTIONS["subtract"], apply(FUNCTIONS["add"], a, b), b)
    x, y = np.float16([1.0, 0.1, 3.0]), np.float16([2048, 999, 1e4])
    expected = ((x + y) - y).tolist()
    assert expected != x.tolist()
    assert run(tree, cs.array(x), cs.array(y)).tolist() == expected


def trees(depth=3):
    """Trees of integers of two widths, over three arrays."""
    kinds = st.sampled_from([INT8, INT32])
    leaf = st.builds(lambda at, dtype: cast(Input(at, INT32), dtype), st.integers(0, 2), kinds)
    names = st.sampled_from(["add", "subtract", "multiply", "maximum", "bitwise_xor"])

    def grown(inner):
        return st.builds(
            lambda name, a, b: apply(FUNCTIONS[name], cast(a, INT32), cast(b, INT32)),
            names, inner, inner,
        )  # fmt: skip

    return st.recursive(leaf, grown, max_leaves=2**depth)


@FEWER
@given(trees())
def test_a_device_and_numpy_compute_a_tree_alike(tree):
    hosts = [np.random.default_rng(i).integers(-200, 200, 40, np.int32) for i in range(3)]
    used = sorted({leaf.position for leaf in leaves(tree)})
    places = {at: Input(i, INT32) for i, at in enumerate(used)}
    tree = substitute(tree, [places.get(at, X) for at in range(3)])
    operands = [hosts[at] for at in used]
    expected = np.empty(40, tree.dtype)
    compute(tree, operands, expected)
    assert run(tree, *map(cs.array, operands)).tolist() == expected.tolist()


def test_the_index_counts_in_c_order():
    made = cs.empty(70, np.float32)
    tree = cast(Index(), FLOAT32)
    Operation("index", lambda operands: tree).into((), made, sys._getframe())
    assert made.numpy().tolist() == list(range(70))


PAIRS = SHAPES.flatmap(lambda shape: st.tuples(laid(shape), laid(shape)))


def sums(pair):
    bases = [each.base(np.int32, seed) for seed, each in enumerate(pair)]
    hosts = [each.of(base) for each, base in zip(pair, bases, strict=True)]
    mine = [each.of(cs.array(base)) for each, base in zip(pair, bases, strict=True)]
    tree = apply(FUNCTIONS["add"], Input(0, INT32), Input(1, INT32))
    found = Operation("add", lambda operands: tree)(tuple(mine), sys._getframe())
    return found.numpy().tolist(), (hosts[0] + hosts[1]).tolist()


@pytest.mark.parametrize(
    ("name", "value"),
    [("MOST_SHORT", 0), ("_ROW", 1), ("_ROW", 1 << 40), ("_MOST_Y", 2), ("_BLOCK", 32)],
    ids=["64 bits", "all by rows", "none by rows", "rows along z", "small blocks"],
)
@FEWER
@given(pair=PAIRS)
def test_every_form_of_kernel_gives_the_same(name, value, pair):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, name, value)
        found, expected = sums(pair)
    assert found == expected


def test_a_kernel_that_divides_wrongly_is_found(monkeypatch):
    right = kernels._divided

    def planted(number, rank, count):
        return [line.replace("% l1", "% l0") for line in right(number, rank, count)]

    monkeypatch.setattr(kernels, "_divided", planted)
    # No other test uses the kernels compiled from here on.
    monkeypatch.setattr(compilation, "_kernels", {})
    pair = [Laid((3, 5), ("gaps", "gaps"), (0, 1), 0), Laid((3, 5), ("whole",) * 2, (1, 0), 0)]
    found, expected = sums(pair)
    assert found != expected
