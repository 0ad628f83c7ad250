"""Arrays that a kernel would misread, by element type, order or gaps, are refused with a remedy."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.arrays.foreign_arrays import TheirArray

import cudasync as cs
from cudasync.driver.arguments import argument_checks

# Kernels for c[i] = a[i]: PTX that shows the element type, and PTX that shows none.
COPY = """
.version 7.0
.target sm_80
.address_size 64
{kernels}
"""
KERNEL = """
.visible .entry copy_{name}(.param .u64 a, .param .u64 c)
{{
    .reg .b32 %r_thread;
    .reg .b{bits} %value, %other;
    .reg .b64 %rd_a, %rd_c, %rd_offset;
    ld.param.u64 %rd_a, [a];
    ld.param.u64 %rd_c, [c];
    mov.u32 %r_thread, %tid.x;
    mul.wide.u32 %rd_offset, %r_thread, {size};
    add.s64 %rd_a, %rd_a, %rd_offset;
    add.s64 %rd_c, %rd_c, %rd_offset;
    ld.global.b{bits} %value, [%rd_a];
    {use}
    st.global.b{bits} [%rd_c], %value;
    ret;
}}
"""
SIZES = {
    "f16": 2,
    "bf16": 2,
    "f32": 4,
    "f64": 8,
    "s16": 2,
    "s32": 4,
    "s64": 8,
    "f16x2": 4,
    "b32": 4,
}
TEXT = COPY.format(
    kernels="".join(
        KERNEL.format(
            name=name,
            bits=8 * size,
            size=size,
            use="" if name == "b32" else f"neg.{name} %other, %value;",
        )
        for name, size in SIZES.items()
    )
)

NUMBERS = [np.dtype(letter) for letter in "?bBhHiIlLefdFD"]
OTHERS = [np.dtype("V4"), np.dtype("S4"), np.dtype("f4, i4"), np.dtype("M8[s]")]
# The rule in full: the dtypes that each kernel type would misread. All others are allowed.
REFUSED = {
    "f16": "?bBhHiIlLfdFD",
    # NumPy has no bfloat16.
    "bf16": "?bBiIlLefdFD",
    "f32": "?bBhHiIlLedD",
    "f64": "?bBhHiIlLefF",
    "s16": "?bBiIlLefdFD",
    "s32": "?bBhHlLefdFD",
    "s64": "?bBhHiIefdFD",
    # Sources have two halves as a pair, or as an integer of four bytes.
    "f16x2": "?bBhHlLfdFD",
    "b32": "",
}
MEANT = {"f16": "f2", "bf16": "u2", "f32": "f4", "f64": "f8", "s16": "i2", "s32": "u4", "s64": "i8",
         "f16x2": "f2", "b32": "u1"}  # fmt: skip


@pytest.fixture
def engine():
    with cs.Engine() as engine:
        yield engine


@pytest.fixture(scope="module")
def kernels():
    module = cs.Module.from_ptx(TEXT)
    return {name: module.kernel(f"copy_{name}") for name in SIZES}


def takes(kernel, array, target):
    try:
        kernel[1, 1](array, target)
    except TypeError as error:
        words = (kernel.name, "argument 1 (.u64 a)", str(array.dtype))
        missing = [word for word in words if word not in str(error)]
        if missing:
            pytest.fail(f"{missing} not in: {error}")
        return False
    return True


@pytest.mark.parametrize("name", SIZES)
def test_the_rule_for_elements_holds_for_every_dtype(engine, kernels, name):
    kernel, target = kernels[name], cs.zeros(64, "V1")
    for dtype in NUMBERS + OTHERS:
        x = cs.zeros(8, dtype)
        expected = dtype.kind in "VSM" or dtype.char not in REFUSED[name]
        assert takes(kernel, x, target) is expected, dtype
        assert takes(kernel, TheirArray(np.zeros(8, dtype)), target) is expected, dtype
        assert takes(kernel, cs.DeviceBuffer(256).view(8, dtype), target) is expected, dtype
        assert takes(kernel, x.view(MEANT[name]), target)
    assert takes(kernel, cs.DeviceBuffer(64), target)


def test_what_passed_once_says_nothing_of_another_dtype(engine, kernels):
    kernel, good, bad = kernels["f32"], cs.zeros(8), cs.zeros(8, np.float64)
    for _ in range(2):
        kernel[1, 1](good, good)
        with pytest.raises(
            TypeError, match=r"array of float64, but the PTX reads or writes.*\.f32"
        ):
            kernel[1, 1](bad, good)
        with pytest.raises(TypeError, match="argument 2"):
            kernel[1, 1](good, bad)
        with pytest.raises(TypeError, match="float64"):
            kernel[1, 1](cs.In(bad), cs.Out(good))
        with pytest.raises(TypeError, match="float64"):
            kernel.prepare(grid=1, args=(bad, good))
        with pytest.raises(TypeError, match="float64"):
            kernel.pack((bad, good))


def test_the_driver_layer_refuses_the_same_of_views_and_of_other_libraries_arrays(kernels):
    kernel, good = kernels["f32"], cs.DeviceBuffer(64)
    for bad in (good.view(8, np.float64), TheirArray(np.zeros(8))):
        for _ in range(2):
            with pytest.raises(TypeError, match="float64"):
                cs.launch(kernel, grid=1, args=(bad, good))
            cs.launch(kernel, grid=1, args=(good.view(8, np.float32), good))
            cs.launch(kernel, grid=1, args=(TheirArray(np.zeros(8, np.float32)), good))
    cs.Device(0).synchronize()


def test_each_way_out_that_is_named_works(engine, kernels):
    x = cs.array(np.array([1.5, 2.5]))
    target = cs.zeros(4)
    with pytest.raises(
        TypeError, match=r"cs\.array\(\.\.\., np\.float32\), or x\.view\(np\.float32\)"
    ):
        kernels["f32"][1, 4](x, target)
    kernels["f32"][1, 4](x.view(np.float32), target)
    assert target.view(np.float64).numpy().tolist() == [1.5, 2.5]
    kernels["f32"][1, 2](cs.array([1.5, 2.5], np.float32), target)
    assert target.numpy()[:2].tolist() == [1.5, 2.5]


def test_a_planted_rule_that_takes_every_array_is_noticed(engine, monkeypatch):
    monkeypatch.setattr(argument_checks, "_may_hold", lambda dtype, element: True)
    kernel = cs.Module.from_ptx(TEXT).kernel("copy_f32")
    assert takes(kernel, cs.zeros(8, np.float64), cs.zeros(8))


GAPPED = {
    "every other": np.s_[::2],
    "backwards": np.s_[::-1],
    "a column": np.s_[:, 1],
    "columns": np.s_[:, :2],
}
WHOLE = {"rows": np.s_[1:], "one element": np.s_[1:2, 1:2], "nothing": np.s_[:0, ::2],
         "one row, backwards": np.s_[1:0:-1], "new axes": np.s_[:, None, :, None]}  # fmt: skip


def views_of(index):
    """The same view of our array and of another library's array."""
    host = np.arange(16, dtype=np.float32).reshape(4, 4)
    theirs = TheirArray(host)
    like = host[index]
    offset = like.__array_interface__["data"][0] - host.__array_interface__["data"][0]
    theirs.shape = like.shape
    theirs._told |= {"strides": like.strides, "data": (theirs.buffer.ptr + offset, False)}
    return cs.array(host)[index], theirs, like


@pytest.mark.parametrize("index", GAPPED.values(), ids=GAPPED)
def test_a_view_with_gaps_is_refused_and_both_ways_out_work(engine, kernels, index):
    ours, theirs, like = views_of(index)
    kernel, target = kernels["f32"], cs.zeros(16)
    for view in (ours, theirs, cs.In(ours)):
        with pytest.raises(ValueError, match=r"not C-contiguous.*x\.copy\(\), or cs\.strided\(x\)"):
            kernel[1, 1](view, target)
    with pytest.raises(ValueError, match="not C-contiguous"):
        kernel.prepare(grid=1, args=(ours, target))
    with pytest.raises(ValueError, match="not C-contiguous"):
        cs.launch(kernel, grid=1, args=(theirs, cs.DeviceBuffer(64)))
    kernel[1, like.size](ours.copy(), target)
    assert target.numpy()[: like.size].tolist() == like.ravel().tolist()
    for view in (ours, theirs):
        kernel[1, 1](cs.strided(view), target)
        assert target.numpy()[0] == like.flat[0]


@pytest.mark.parametrize("index", WHOLE.values(), ids=WHOLE)
def test_axes_of_length_one_and_nothing_at_all_are_no_gaps(engine, kernels, index):
    ours, theirs, _ = views_of(index)
    for view in (ours, theirs):
        kernels["f32"][1, 1](view, cs.zeros(16))
    assert ours.is_contiguous


def test_fortran_order_is_another_order(engine, kernels):
    theirs = TheirArray(np.zeros((2, 3), np.float32), strides=(4, 8))
    with pytest.raises(ValueError, match="not C-contiguous"):
        kernels["f32"][1, 1](theirs, cs.zeros(16))
    with pytest.raises(ValueError, match="not contiguous"):
        cs.copy(cs.empty((2, 3)), theirs)
    kernels["f32"][1, 6](cs.strided(theirs), cs.zeros(16))


def test_a_strided_view_is_what_the_launch_uses_from_its_first_to_its_last_byte(engine, kernels):
    x, target = cs.array(np.arange(8, dtype=np.float32)), cs.zeros(4)
    view = cs.strided(x[1::3])
    assert (view.region, view.shape, view.strides) == (x[1::3].region, (3,), (12,))
    kernels["f32"][1, 4](cs.strided(x[::2]), target)
    assert target.numpy().tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="not C-contiguous"):
        kernels["f32"][1, 4](view[::2], target)
    with pytest.raises(TypeError, match="float64"):
        kernels["f32"][1, 4](cs.strided(cs.zeros(8, np.float64)[::2]), target)
    with pytest.raises(TypeError, match="strided takes a device array, not a NumPy array"):
        cs.strided(np.zeros(4)[::2])
