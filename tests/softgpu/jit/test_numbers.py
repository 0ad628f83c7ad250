"""The approximate functions keep the hardware's error bounds over their whole range."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.lowering.jit_launch import compiled, run

TEXT = """\
.version 7.0
.target sm_75
.address_size 64
.visible .entry test(.param .u64 x, .param .u64 y, .param .u32 n)
{
    .reg .u32 %i, %n;
    .reg .u64 %rd_x, %rd_y;
    .reg .f32 %x;
    .reg .pred %p;
    ld.param.u64 %rd_x, [x];
    ld.param.u64 %rd_y, [y];
    ld.param.u32 %n, [n];
    mov.u32 %i, %ctaid.x;
    mad.lo.u32 %i, %i, 256, 0;
    mov.u32 %n, %tid.x;
    add.u32 %i, %i, %n;
    mad.wide.u32 %rd_x, %i, 4, %rd_x;
    mad.wide.u32 %rd_y, %i, 4, %rd_y;
    ld.global.f32 %x, [%rd_x];
    FUNCTION %x, %x;
    st.global.f32 [%rd_y], %x;
}
"""


def apply(function, x):
    x = np.asarray(x, np.float32)
    padded = np.resize(x, -(-x.size // 256) * 256)
    y = np.zeros_like(padded)
    module = compiled(TEXT.replace("FUNCTION", function))
    run(module, "test", padded.size // 256, 256, padded, y, padded.size)
    return y[: x.size].astype(np.float64)


def spread(low, high, count=20000):
    return np.linspace(low, high, count, dtype=np.float32)


@pytest.mark.parametrize(
    ("function", "exact", "x", "relative", "absolute"),
    [
        ("ex2.approx.f32", np.exp2, spread(-126, 127), 2**-22, 0),
        ("ex2.approx.f32", np.exp2, spread(-149, -126), 0, 2**-149),
        ("lg2.approx.f32", np.log2, spread(2**-126, 1e-37), 2**-22, 0),
        ("lg2.approx.f32", np.log2, spread(0.5, 2.0), 2**-21, 2**-23),
        ("lg2.approx.f32", np.log2, np.exp2(spread(-120, 120)), 2**-22, 2**-22),
        ("sin.approx.f32", np.sin, spread(-np.pi, np.pi), 0, 2**-20.9),
        ("cos.approx.f32", np.cos, spread(-np.pi, np.pi), 0, 2**-20.9),
        # Hardware's turns have the precision of an f32.
        ("sin.approx.f32", np.sin, spread(-2 * np.pi, 2 * np.pi), 0, 2**-20.5),
        ("sin.approx.f32", np.sin, spread(-100 * np.pi, 100 * np.pi), 0, 2**-14.7),
        ("tanh.approx.f32", np.tanh, spread(-12, 12), 2**-11, 0),
        ("tanh.approx.f32", np.tanh, np.exp2(spread(-100, 0)), 2**-11, 0),
        ("rsqrt.approx.f32", lambda v: 1 / np.sqrt(v), spread(1e-30, 1e30), 2**-22, 0),
    ],
)
def test_an_approximation_is_as_close_as_hardware_is(function, exact, x, relative, absolute):
    found, wanted = apply(function, x), exact(x.astype(np.float64))
    np.testing.assert_array_less(
        np.abs(found - wanted), relative * np.abs(wanted) + absolute + 1e-300
    )


def test_what_is_no_number_stays_so():
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0], np.float32)
    np.testing.assert_array_equal(apply("ex2.approx.f32", odd), [np.nan, np.inf, 0, 1, 1, 0.5])
    np.testing.assert_array_equal(
        apply("lg2.approx.f32", odd), [np.nan, np.inf, np.nan, -np.inf, -np.inf, np.nan]
    )
    np.testing.assert_array_equal(apply("sin.approx.f32", odd)[:5], [np.nan, np.nan, np.nan, 0, 0])
    assert np.signbit(apply("sin.approx.f32", odd)[4])
