"""Numbers as arguments of a graph: an update takes what a kernel call takes, and cuts nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs

TYPES = {
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
}
SOURCE = "".join(
    f'extern "C" __global__ void put_{name}({c} *x, {c} value) {{ x[0] = value; }}\n'
    for name, c in TYPES.items()
)
numbers = st.one_of(
    st.integers(-(2**65), 2**65),
    st.integers(-300, 300),
    st.sampled_from([2**31, 2**32 + 5, 2**63, 1e40, -1e40, float("inf"), 0.5, True]),
    st.floats(width=32),
    st.sampled_from(list(TYPES)).flatmap(
        lambda name: st.sampled_from([0, 1, 100]).map(np.dtype(name).type)
    ),
    st.sampled_from([np.int64(2**32 + 5), np.uint32(2**31), np.float64(1e40), np.bool_(1)]),
)


@pytest.fixture(scope="module")
def kernels():
    module = cs.Module.from_cuda(SOURCE)
    return {name: module.kernel(f"put_{name}") for name in TYPES}


def answer(call):
    """What `call` leaves behind, or the class of its error."""
    try:
        return call()
    except (TypeError, ValueError) as error:
        return type(error)


@given(st.sampled_from(list(TYPES)), numbers)
def test_an_update_takes_what_a_call_takes(kernels, name, value):
    kernel, dtype = kernels[name], np.dtype(name)
    x = cs.zeros(1, dtype)

    def call():
        kernel[1, 1](x, value)
        return x.numpy()[0]

    def update():
        exe.update(value=value)
        exe.launch()
        return x.numpy()[0]

    eager = answer(call)
    x = cs.zeros(1, dtype)
    with cs.graph() as g:
        kernel[1, 1](x, g.argument("value", dtype.type(1)))
    exe = g.instantiate()
    seen = answer(update)
    is_reinterpreted = not isinstance(eager, type) and dtype.kind in "iu" and int(eager) != value
    if is_reinterpreted:
        # A kernel's parameter has no sign: a call takes the bits. A dtype has one.
        assert seen is ValueError
    else:
        assert seen == eager or (seen != seen and eager != eager)
    if isinstance(seen, type):
        exe.launch()
        assert x.numpy()[0] == 1


@pytest.mark.parametrize(
    ("first", "value", "error"),
    [
        (np.complex64(1), 1e40, ValueError),
        (np.complex64(1), np.complex128(1), TypeError),
        (np.bool_(0), 2, TypeError),
        (np.int32(1), cs, TypeError),
        (np.int64(1), np.zeros(2), TypeError),
        (np.float32(1), 1j, TypeError),
        (np.int32(1), None, TypeError),
        (1, "1", TypeError),
    ],
)
def test_other_numbers_are_refused(first, value, error):
    x = cs.zeros(1)
    with cs.graph() as g:
        g.argument("a", first)
        x += 1
    exe = g.instantiate()
    with pytest.raises(error, match="argument a"):
        exe.update(a=value)


def test_an_array_as_a_number_is_refused():
    with cs.graph() as g:
        g.argument("a", np.int64(1))
    exe = g.instantiate()
    with pytest.raises(TypeError, match="argument a"):
        exe.update(a=cs.zeros(1))


def test_an_address_is_no_number_to_update():
    source = 'extern "C" __global__ void put(unsigned long long p) { *(float *)p += 1.0f; }'
    put = cs.Module.from_cuda(source).kernel("put")
    one, other = cs.zeros(1), cs.zeros(1)
    with cs.graph() as g:
        put[1, 1](g.argument("p", np.uint64(one.ptr)))
    exe = g.instantiate()
    exe.update(p=np.uint64(one.ptr))
    exe.launch()
    with pytest.raises(ValueError, match="make the array an argument"):
        exe.update(p=np.uint64(other.ptr))
    exe.launch()
    assert (one.numpy()[0], other.numpy()[0]) == (2, 0)
