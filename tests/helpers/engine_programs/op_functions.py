"""Functions for the ops of random programs: one Python function for each kind of step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from helpers.engine_programs.reference_model import joined
from helpers.engine_programs.steps import (
    Clear,
    Direct,
    Exhaust,
    Fail,
    Hold,
    Join,
    Mix,
    Nest,
    Note,
    Set,
    Step,
)

import cudasync as cs
from cudasync.testing import HostLatch

if TYPE_CHECKING:
    from helpers.engine_programs.runner import Runner

# Only an op that hangs takes longer.
PATIENCE_S = 30.0


class Planned(Exception):
    """The exception of a step that fails."""


class PlannedExit(BaseException):
    """The exception of a host function that fails like `sys.exit`, a cancelled task or Ctrl-C."""


def _outermost(engine: Any) -> Any:
    """The engine that will run what is pushed to this one, which may be a recording."""
    while engine.mode == "recording":
        engine = engine.outside
    return engine


def function_of(run: Runner, id_: str, step: Step):
    """The function of this step's op. It refers to no more objects than it needs."""
    match step:
        case Mix(target, source, factor):
            x, y = run.numbers(target), run.numbers(source)
            index = np.arange(len(x), dtype=np.int32)

            def function() -> None:
                x[:] = 31 * x + factor * y + index
        case Join(target, first, second):
            x, y, z = run.numbers(target), run.numbers(first), run.numbers(second)

            def function() -> None:
                x[:] = joined(x, y, z)
        case Set(target, value) | Hold(target, value):
            x = run.numbers(target)
            latch = HostLatch(deadline_s=PATIENCE_S)
            if isinstance(step, Hold) and run.holds:
                run.latches.append(latch)
            else:
                latch.release()

            def function() -> None:
                latch.wait()
                x[:] = value + np.arange(len(x), dtype=np.int32)
        case Clear(target):
            x = run.view(target)

            def function(stream: cs.Stream) -> None:
                cs.memset_async(x, 0, stream=stream)
        case Exhaust():

            def function(*_: cs.Stream) -> None:
                cs.empty(1 << 50, np.uint8)
        case Fail(target, _, is_late):
            x = run.numbers(target)
            # On the caller's thread it would end the program, as it should.
            may_exit = _outermost(run.engine).mode != "serial" and id_[-1] in "13579"

            def function(stream: cs.Stream | None = None) -> None:
                if is_late and stream is not None:
                    cs.memset_async(x, 0, stream=stream)
                elif is_late:
                    x[:] = 0
                raise PlannedExit(id_) if may_exit and stream is None else Planned(id_)
        case Direct(target, source):
            x, y = run.numbers(target), run.view(source)

            def function() -> None:
                with cs.Stream(y.device) as stream:
                    cs.memcpy_async(x, y, stream=stream)
                    stream.synchronize()
        case Note(token, is_write):
            log = run.logs[token.index]

            def function() -> tuple[str, ...]:
                if is_write:
                    log.append(id_)
                return tuple(log)
        case Nest(token, inner):

            def function() -> object:
                ids = [f"{id_}.{i}" for i in range(len(inner))]
                for each, push in zip(ids, inner, strict=True):
                    run.push(each, push)
                return [run.result(each) for each in ids] if token is None else None
        case _:
            raise AssertionError(f"no such op: {step}")
    return function


def place_of_launch(target: cs.Array, source: cs.Array) -> dict[str, cs.Device]:
    """The argument that names a launch's device; empty where the arrays decide."""
    return {} if source.device is target.device else {"device": target.device}
