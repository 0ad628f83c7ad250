"""Floor 4, kernels. What a tape asks of a kernel that is called on arrays: see `engine/replay`.

A call is compared by the regions and forms of its arrays, and by the class and bits of its numbers.
Calls that agree in these launch the same work. A call is not replayed if more than that decides
what it does: arrays of other libraries, views with gaps, pointers in memory, variables of a module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

import numpy as np

from cudasync import driver
from cudasync.array.array import Array
from cudasync.array.kernels.indirect_memory import reach_of
from cudasync.array.kernels.launch_accesses import NARROWED
from cudasync.engine.hazards.interval_map import Everywhere
from cudasync.engine.log.histories import Known
from cudasync.engine.op import OpKind
from cudasync.engine.replay.sequence import Call, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from cudasync.array.kernels.kernel import BoundKernel, Kernel
    from cudasync.driver import Device, Event, Stream
    from cudasync.engine.batch.failed_step import Steps
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.replay.sequence import Step


def captured(
    bound: BoundKernel,
    kernel: Kernel,
    args: Sequence[Any],
    accesses: Accesses,
    frame: FrameType,
) -> Call | str:
    """The call of `bound` as a step, which ran `kernel`: the same kernel, or the one of another
    device. Else why it cannot be one."""
    values = [a.array if type(a) in NARROWED else a for a in args]
    (only_read, updated, _), read, written = accesses
    if read or written:
        return f"kernel {kernel.name} uses variables of its module"
    if (
        any(region.__class__ is Everywhere for region in only_read + updated)
        or reach_of(kernel, args, values) is not None
    ):
        return f"kernel {kernel.name} follows pointers in memory"
    takes = _taker(args)
    if takes is None:
        return "an argument is neither an array of ours without gaps nor a plain number"
    shape = kernel.shape(bound.grid, bound.block, bound.shared_bytes)
    block = kernel.packing.take(values)
    launch = driver.Launch(kernel, shape, block, None)
    return Call(bound, frame.f_code, frame.f_lasti, takes, launch, accesses, kernel.label)


def _taker(args: Sequence[Any]) -> Callable[[Sequence[Any]], bool] | None:
    """A function that tells whether arguments are the same memory and the same numbers. None if
    these cannot be compared."""
    names: dict[str, Any] = {}
    parts: list[str] = []
    wanted: list[Any] = []
    tests = ["(PARTS) == wanted"]
    for i, argument in enumerate(args):
        place, value = f"a{i}", argument
        if type(argument) in NARROWED:
            parts.append(f"a{i}.__class__")
            wanted.append(type(argument))
            place, value = f"a{i}.array", argument.array
        if type(value) is Array and not value.form.has_gaps:
            parts += [f"{place}.form", f"{place}.region"]
            wanted += [value.form, value.region]
        elif isinstance(value, (bool, int, float, bytes, np.number, np.bool_)):
            parts += [f"{place}.__class__", place]
            wanted += [value.__class__, value]
            if not isinstance(value, (int, bytes)) and not value:
                # Zeros of both signs are equal.
                tests.append(f"{place} is value{i}")
                names[f"value{i}"] = value
        else:
            return None
    names["wanted"] = tuple(wanted)
    every = "".join(f"a{i}, " for i in range(len(args)))
    # One comparison of tuples, which compares what is one object by identity first.
    source = (
        "def takes(args):\n"
        "    try:\n"
        f"        [{every}] = args\n"
        f"        return {' and '.join(tests)}\n"
        "    except (AttributeError, ValueError):\n"
        "        return False\n"
    ).replace("PARTS", "".join(f"{each}, " for each in parts))
    exec(compile(source, "<arguments of a repeated launch>", "exec"), names)
    takes: Callable[[Sequence[Any]], bool] = names["takes"]
    return takes


class GraphPiece:
    """Launches as a graph of the driver: see `sequence.Piece`."""

    is_graph = True

    def __init__(self, steps: Sequence[Step], device: Device) -> None:
        # Loaded once something is repeated.
        from cudasync.graph.hazards import ordered
        from cudasync.graph.node import Node
        from cudasync.graph.parts.device import DevicePart
        from cudasync.graph.segments import Segment

        nodes = ordered(
            [
                Node(
                    index,
                    step.launch.on,
                    OpKind.KERNEL,
                    step.accesses,
                    name=step.name,
                    where=(step.code, step.at),
                    device=device,
                    kernel=step.launch.kernel.name,
                    launch=step.launch,
                )
                for index, step in enumerate(steps)
            ]
        )
        segment = Segment(device, "compute", 0, is_alone=False, nodes=list(nodes))
        self._part = DevicePart(segment)
        self.accesses = self._part.accesses
        self.names: Steps = self._part.candidates
        # Each run under way has this piece.
        self.names.salvage = WeakMethod(self._salvage)
        self.name = name_of(len(steps))
        self.known = Known()

    def _salvage(self, op: Any) -> Callable[..., Any] | None:
        """See `Op._salvage`."""
        return self._part.intact.salvage(op)

    def enqueue(self, stream: Stream, event: Event | None = None) -> None:
        self._part._or_raise().launch(stream, event)
