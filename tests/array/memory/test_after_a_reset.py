"""Arrays whose device was reset: each use raises an error, and nothing is enqueued."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.driver.call_counts import counted_calls

import cudasync as cs
from cudasync import xp
from cudasync.array.kernels.bundled_ptx import kernel_file
from cudasync.driver.arguments.argument_form import Form

SPOT = cs.device_count() - 1
HOST = np.arange(8, dtype=np.float32)


def filled(x):
    kernel = cs.Module.from_file(kernel_file("fill"), device=SPOT).kernel("fill_u32")
    return kernel[1, 8](np.uint32(1), x.view(np.uint32), np.uint32(8))


def assigned(x, value):
    x[2:4] = value


USES = {
    "x + y": lambda x, y: x + y,
    "x + 1": lambda x, _: x + 1,
    "new + x": lambda x, _: cs.zeros(8, device=SPOT) + x,
    "x += 1": lambda x, _: x.__iadd__(1),
    "x[2:4] = 1": lambda x, _: assigned(x, 1),
    "x[2:4] = y": lambda x, y: assigned(x, y[2:4]),
    "of a view": lambda x, _: x[1:] * 2,
    "sum": lambda x, _: xp.sum(x),
    "out=": lambda x, _: xp.sum(cs.zeros(8, device=SPOT), axis=0, out=x[0]),
    "cumulative_sum": lambda x, _: xp.cumulative_sum(x),
    "matmul": lambda x, y: x.reshape(2, 4) @ y.reshape(4, 2),
    "sort": lambda x, _: xp.sort(x),
    "take": lambda x, _: xp.take(x, xp.asarray([1, 2], device=SPOT)),
    "x[indices] = 1": lambda x, _: x.__setitem__(xp.asarray([1, 2], device=SPOT), 1),
    "copy": lambda x, y: cs.copy(x, y),
    "copy in": lambda x, _: cs.copy(x, HOST),
    "copy out": lambda x, _: cs.copy(np.zeros(8, np.float32), x),
    "x.copy()": lambda x, _: x[::2].copy(),
    "to_device": lambda x, _: x.to_device(0 if SPOT else "cpu"),
    "numpy": lambda x, _: x.numpy(),
    "float": lambda x, _: float(x[0]),
    "kernel": lambda x, _: filled(x),
    "dlpack": lambda x, _: x.__dlpack__(),
    "interface": lambda x, _: x.__cuda_array_interface__,
}


def pair():
    return cs.array(HOST, device=SPOT), cs.array(HOST, device=SPOT)


def enqueued(calls):
    return [name for name in calls if "Memcpy" in name or "Launch" in name]


@pytest.fixture
def engine():
    with cs.Engine() as engine:
        yield engine
        engine.waitall()
        engine.clear_errors()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("use", USES)
def test_it_is_refused_before_anything_is_enqueued(use, engine):
    """This also holds for a call that was made before the reset, and for a call that follows it."""
    USES[use](*pair())
    x, y = pair()
    engine.waitall()
    cs.Device(SPOT).reset()
    for _ in range(2):
        with pytest.raises(cs.ClosedError, match="reset of Device"):
            USES[use](x, y)
        engine.waitall()
        USES[use](*pair())
        engine.waitall()
    with counted_calls() as calls, pytest.raises(cs.ClosedError):
        USES[use](x, y)
    # Other operands, such as an array of indices, are new.
    if "indices" not in use and use not in ("take", "new + x", "out="):
        assert not enqueued(calls)


def test_what_is_made_after_it_is_right(engine):
    x, _ = pair()
    (xp.cumulative_sum(x + 1) * 2).wait()
    engine.waitall()
    cs.Device(SPOT).reset()
    x, y = pair()
    found = xp.cumulative_sum(x + 1) * 2
    found += y
    assert found.numpy().tolist() == (np.cumsum(HOST + 1) * 2 + HOST).tolist()
    assert xp.full((3,), 2.0, device=SPOT).numpy().tolist() == [2.0] * 3


def test_a_refused_use_costs_the_new_life_nothing(engine):
    x, y = pair()
    engine.waitall()
    cs.Device(SPOT).reset()
    new, _ = pair()
    with pytest.raises(cs.ClosedError):
        new += x
    with pytest.raises(cs.ClosedError):
        x += new
    assert (new + new).numpy().tolist() == (HOST + HOST).tolist()
    del y


def test_repr_says_it(engine):
    x, _ = pair()
    engine.waitall()
    cs.Device(SPOT).reset()
    assert "reset of Device" in repr(x)


def test_a_planted_bug_is_found(engine, monkeypatch):
    """Without this check, the call is enqueued."""
    monkeypatch.setattr(Form, "raise_if_over", lambda form: None)
    x, y = pair()
    engine.waitall()
    cs.Device(SPOT).reset()
    cs.copy(x, y)
    with pytest.raises(cs.OpError):
        x.wait()
    engine.clear_errors()
    cs.Device(SPOT).reset()


def test_a_kernel_that_was_called_before_is_refused_before_anything_is_pushed(engine):
    """The call equals the kernel's latest call, so it skips the look-up of its arguments."""
    kernel = cs.Module.from_file(kernel_file("fill"), device=SPOT).kernel("fill_u32")
    x = cs.zeros(8, np.uint32, device=SPOT)
    args = np.uint32(1), x, np.uint32(8)
    launch = kernel.prepare(grid=1, block=8, args=args)
    for _ in range(2):
        kernel[1, 8](*args)
        launch.push()
    engine.waitall()
    cs.Device(SPOT).reset()
    with counted_calls() as calls:
        for call in (lambda: kernel[1, 8](*args), launch.push, lambda: engine.push_many([launch])):
            with pytest.raises(cs.ClosedError, match="reset of its device"):
                call()
    assert not enqueued(calls)
    again = cs.Module.from_file(kernel_file("fill"), device=SPOT).kernel("fill_u32")
    fresh = cs.zeros(8, np.uint32, device=SPOT)
    again[1, 8](np.uint32(3), fresh, np.uint32(8))
    assert fresh.numpy().tolist() == [3] * 8
