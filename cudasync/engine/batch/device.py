"""Floor 2. A batch on a device: its steps are enqueued in their order on one stream.

The stream keeps their order; one event behind the last covers them all. If all steps are launches,
the first launch keeps the reusable results for the next push.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from cudasync.driver.kernels.launch_sequences import LaunchSequence
from cudasync.engine import current, general_push
from cudasync.engine.batch.steps import name_for, together
from cudasync.engine.device import device_push
from cudasync.engine.log.histories import Known
from cudasync.engine.op import OpKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from cudasync.driver import Device, Event, Stream
    from cudasync.engine.batch.steps import Step
    from cudasync.engine.engine import Engine
    from cudasync.engine.general_push import Bind
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.op import Op
    from cudasync.engine.op_classes import DeviceOp

_KERNEL = OpKind.KERNEL
_push = device_push.push


class Batch:
    """The reusable results for launches that are pushed as a batch repeatedly.

    It refers to neither the launches nor their arrays: see `LaunchSequence`.
    """

    __slots__ = ("accesses", "device", "is_of", "known", "name", "names", "on")

    def __init__(
        self, sequence: LaunchSequence, accesses: Accesses, device: Device, names: tuple[str, ...]
    ) -> None:
        self.is_of = sequence.is_of
        self.on = sequence.on
        self.accesses = accesses
        self.device = device
        self.names = names
        self.name = name_for(len(names))
        self.known = Known()


def push(
    engine: Engine,
    given: Sequence[Any],
    steps: list[Step],
    name: str,
    priority: int,
    frame: FrameType,
) -> Op:
    """Push a batch of steps of one device; `given` are the caller's steps."""
    device = steps[0].device
    assert device is not None
    accesses = together(steps)
    names = tuple([step.name for step in steps])
    launches = [step.launch for step in steps if step.launch is not None]
    bind: Bind | None = None
    is_fused = len(launches) == len(steps) and not engine._is_checked
    if is_fused:
        sequence = LaunchSequence(launches)
        enqueue: Callable[..., Any] = partial(sequence.on, given)
        if all(each.is_steady for each in given):
            given[0].latest_batch = Batch(sequence, accesses, device, names)
    else:
        enqueue = partial(_enqueue_each, [step.call for step in steps])
        # The serial engine itself tracks the op that it runs.
        has_functions = len(launches) < len(steps)
        bind = _inside if has_functions and engine._serial is None else _with_op
    if engine._is_direct and not priority:
        return _push(
            engine,
            enqueue,
            accesses,
            name,
            device,
            frame,
            names,
            None,
            _KERNEL,
            None if bind is None else partial(_bound, bind),
        )
    (only_read, updated, written), reads, writes = accesses
    op = general_push.push(
        engine,
        enqueue,
        _KERNEL,
        (*only_read, *updated, *reads),
        (*updated, *written, *writes),
        name,
        priority,
        device,
        engine._compute,
        kernel=names,
        bind=bind,
    )
    op._said = accesses
    return op


def _bound(bind: Bind, op: DeviceOp) -> bool:
    """Let `op` enqueue itself through `bind(op, fn)`."""
    assert op._fn is not None
    op._fn = bind(op, op._fn)
    return False


def _with_op(op: DeviceOp, enqueue: Callable[..., Any]) -> Callable[..., Any]:
    return partial(enqueue, op)


def _inside(op: DeviceOp, enqueue: Callable[..., Any]) -> Callable[..., Any]:
    """The same, with the thread inside the op: users' functions may push."""
    op._calls_users = True
    return partial(current.call_with_its_engine, op, partial(enqueue, op))


def _enqueue_each(
    calls: list[Callable[[Stream], Any]], op: Any, stream: Stream, event: Event | None = None
) -> list[Any]:
    """Enqueue the steps in order; return their results. Tells `op` which step failed."""
    results: list[Any] = []
    call = None
    try:
        for call in calls:
            results.append(call(stream))
        if event is not None:
            stream.record(event)
        return results
    except BaseException:
        if len(results) < len(calls):
            op._failed_at(len(results))
        raise
    finally:
        # As in `drain_loop.drain`: an exception of a step refers to this frame.
        calls, op, call = [], None, None
