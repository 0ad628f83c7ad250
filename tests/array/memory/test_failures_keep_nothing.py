"""Failures keep no memory alive: unused arrays are freed, whatever failed on them.

An exception refers to frames, and frames refer to arrays. A failure that poisons data lives as long
as the data, so it must not keep the data alive.
"""

from __future__ import annotations

import gc
import traceback
import weakref
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, engine_of

import cudasync as cs
from cudasync import driver

pytestmark = pytest.mark.loses_device

KERNELS = Path(__file__).parents[2] / "helpers" / "kernels.ptx"
WILD = """
.version 6.4
.target sm_75
.address_size 64
.visible .entry wild(.param .u64 target)
{
    .reg .b64 %rd_target;
    ld.param.u64 %rd_target, [target];
    cvta.to.global.u64 %rd_target, %rd_target;
    st.global.u32 [%rd_target + 1073741824], 1;
    ret;
}
"""
N = 64


@pytest.fixture(params=["async", "serial", "traced"])
def engine(request):
    options = {"serial": {"mode": "serial"}, "traced": {"trace": True}}
    with engine_of(workers=1, **options.get(request.param, {})) as engine:
        yield engine
        engine.clear_errors()


def refused(x: cs.Array) -> cs.PreparedLaunch:
    """A launch that fails when it is issued: its module is closed, and it does not know."""
    mix = cs.Module.from_file(KERNELS).kernel("mix")
    launch = mix.prepare(grid=1, block=8, args=(x, x, np.int32(1), np.uint32(8)))
    driver.Module.close(mix.module)
    return launch


class Failing:
    """A failing op of each kind. A local variable of the kind's method holds the only array."""

    memory: weakref.ref[object]

    def array(self) -> cs.Array:
        made = cs.zeros(N, np.int32)
        self.memory = weakref.ref(made._allocation)
        return made

    def launch(self) -> cs.Op:
        """The driver is never called, because the module is closed by then."""
        return refused(self.array()).push()

    def batch(self) -> cs.Op:
        launch = refused(self.array())
        return cs.engine().push_many([launch, launch])

    def while_another_is_handled(self) -> cs.Op:
        x = self.array()
        try:
            x.no_such_attribute  # noqa: B018
        except AttributeError:
            return refused(x).push()

    def fault(self) -> cs.Op:
        """The driver reports the fault at its next call."""
        op = cs.Module.from_ptx(WILD).kernel("wild")[1, 1](self.array())
        op.exception(PATIENCE_S)
        return op

    def device_function(self) -> cs.Op:
        x = self.array()

        def fail(stream: cs.Stream) -> None:
            raise ValueError("planned")

        return cs.engine().push(fail, writes=[x], device=cs.Device(0))

    def host_function(self) -> cs.Op:
        x = self.array()
        return cs.engine().push(lambda: x.no_such_attribute, writes=[x])

    def called_by_a_host_function(self) -> cs.Op:
        """The frame below the function's frame is ours, and refers to the array."""
        x = self.array()
        return cs.engine().push(lambda: cs.copy(x, x[:-1]), writes=[x])

    def batch_of_functions(self) -> cs.Op:
        x = self.array()
        return cs.engine().push_many([(int, [x], ()), (lambda: x.no_such_attribute, (), [x])])


OURS = ["launch", "batch", "while_another_is_handled", "fault"]
THEIRS = ["device_function", "host_function", "called_by_a_host_function", "batch_of_functions"]


def is_gone(failing: Failing) -> bool:
    gc.collect()
    return failing.memory() is None


def failed(engine: cs.Engine, kind: str) -> tuple[Failing, cs.Op]:
    failing = Failing()
    op = getattr(failing, kind)()
    with pytest.raises(cs.OpError):
        engine.waitall(PATIENCE_S)
    # The worker releases its last op when it takes the next one.
    engine.push(lambda: None).wait(PATIENCE_S)
    return failing, op


@pytest.fixture
def healed():
    yield
    cs.Device(0).reset()


@pytest.mark.parametrize("kind", OURS)
def test_a_failed_launch_keeps_no_array_though_its_error_is_kept(engine, kind, healed):
    """The exception refers to our frames only, not to those of the push and the wait."""
    failing, op = failed(engine, kind)
    error = op.exception()
    assert is_gone(failing)
    assert error is not None
    engine.clear_errors()


@pytest.mark.parametrize("how", ["cleared", "closed"])
@pytest.mark.parametrize("kind", OURS + THEIRS)
def test_memory_comes_back_once_the_failure_is_of_no_use(kind, how, healed):
    """Until then `waitall` raises the failure again, with the frames of the program."""
    engine = cs.Engine(workers=1)
    with cs.use(engine):
        failing, op = failed(engine, kind)
    del op
    if how == "cleared":
        engine.clear_errors()
    else:
        engine.close()
    assert is_gone(failing)


def test_memory_that_ran_out_is_told_of_by_an_error_that_only_its_reader_keeps(engine):
    """Only the program may keep the frames that the error passed."""

    def runs_out() -> None:
        x = failing.array()  # noqa: F841
        with pytest.raises(cs.CudaError, match="OUT_OF_MEMORY"):
            cs.empty(1 << 60, np.int8)

    failing = Failing()
    runs_out()
    assert is_gone(failing)


@pytest.mark.parametrize("kind", THEIRS)
def test_a_failure_of_a_function_tells_where_it_was_raised_before_and_after_the_close(kind):
    engine = cs.Engine(workers=1)
    with cs.use(engine):
        _, op = failed(engine, kind)
    before = op.exception().cause
    engine.close()
    after = op.exception().cause
    assert type(before) is type(after)
    assert str(before) == str(after)
    first = traceback.extract_tb(before.__traceback__)[0]
    assert first.filename == __file__, "the frames of the engine that called it are left out"
    assert after.__traceback__ is None
    assert f'File "{__file__}", line {first.lineno}' in after.__notes__[-1]


def test_an_exception_that_is_not_ours_tells_which_frames_of_ours_it_came_from(engine):
    """Such an exception may be a defect of ours, or of a library that we use."""
    op = engine.push(partial(int, "seven"))
    cause = op.exception(PATIENCE_S).cause
    assert cause.__traceback__ is None
    assert "op._result = " in cause.__notes__[0]
