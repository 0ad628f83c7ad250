"""Calling the driver in tests: unwrap what must succeed, read what a code stands for."""

from __future__ import annotations

from cuda.bindings import driver


def ok(result):
    """The values of a call that must succeed: one value, or a tuple of several, or nothing."""
    assert result[0] == driver.CUresult.CUDA_SUCCESS, (result[0], message(result[0]))
    return result[1] if len(result) == 2 else result[1:]


def message(code):
    """The sentence that cuGetErrorString has for a code."""
    return driver.cuGetErrorString(code)[1].decode()


def create_context():
    """A new context, made current; the call changed its shape with CUDA 13."""
    try:
        return ok(driver.cuCtxCreate(None, 0, 0))
    except TypeError:
        return ok(driver.cuCtxCreate(0, 0))
