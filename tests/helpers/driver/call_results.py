"""Results of driver calls in tests: unwrap a call that must succeed, and describe a code."""

from __future__ import annotations

import ctypes
import os
from contextlib import contextmanager

from cuda.bindings import driver


def ok(result):
    """The values of a call that must succeed: one value, or a tuple of several, or nothing."""
    assert result[0] == driver.CUresult.CUDA_SUCCESS, (result[0], message(result[0]))
    return result[1] if len(result) == 2 else result[1:]


def message(code):
    """The text of cuGetErrorString for a code."""
    return driver.cuGetErrorString(code)[1].decode()


def place_driver():
    """Put the software GPU into this process, unless CUDASYNC_DEVICE asks for a real one."""
    if os.environ.get("CUDASYNC_DEVICE") != "cuda":
        from cudasync.softgpu import install

        install()


def tells(code, text):
    """Whether the software GPU says this of a code; a real driver has words of its own."""
    return text in message(code) or os.environ.get("CUDASYNC_DEVICE") == "cuda"


@contextmanager
def held(stream):
    """Inside the block, the stream runs none of its new work, under every scheduler.

    The word that the stream waits for is freed with the context.
    """
    word = ok(driver.cuMemHostAlloc(4, 0))
    ctypes.memset(word, 0, 4)
    ok(driver.cuStreamWaitValue32(stream, word, 1, 0))
    try:
        yield
    finally:
        ctypes.memset(word, 1, 4)


class _Cuda13:
    """The driver's functions in the forms that their names have since CUDA 13.

    In the bindings of CUDA 12 these names are older forms, and the new forms have their C names.
    """

    def __getattr__(self, name):
        names = (f"{name}_v4", f"{name}_v3", f"{name}_v2", name) if IS_CUDA_12 else (name,)
        return next(getattr(driver, each) for each in names if hasattr(driver, each))


IS_CUDA_12 = hasattr(driver, "cuGraphAddDependencies_v2")
cuda13 = _Cuda13()


def create_context():
    """Make a new context current, and return it."""
    return ok(cuda13.cuCtxCreate(None, 0, 0))
