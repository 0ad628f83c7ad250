"""Floor 4, kernels. What a tape asks of a kernel that is called on arrays: see `engine/replay`.

A call is compared by the regions and forms of its arrays, and by the class and bits of its numbers.
Calls that agree in these launch the same work. A call is not replayed if more than that decides
what it does: arrays of other libraries, views with gaps, pointers in memory, variables of a module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync import driver
from cudasync.array.array import Array
from cudasync.array.kernels.indirect_memory import reach_of
from cudasync.array.kernels.launch_accesses import NARROWED
from cudasync.driver.arguments.argument_packing import OUT_OF_RANGE
from cudasync.engine.hazards.interval_map import Everywhere
from cudasync.engine.log.histories import Known
from cudasync.engine.op import OpKind
from cudasync.engine.replay.sequence import Call, CallByCall, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from types import FrameType

    from cudasync.array.kernels.kernel import BoundKernel, Kernel
    from cudasync.driver import Device, Event, Stream
    from cudasync.engine.batch.failed_step import Steps
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.replay.sequence import Piece, Step

_NUMBERS = (bool, int, float, np.number, np.bool_)


def captured(
    bound: BoundKernel,
    kernel: Kernel,
    args: Sequence[Any],
    accesses: Accesses,
    frame: FrameType,
    *,
    changes: bool,
) -> Call | str:
    """The call of `bound` as a step, which ran `kernel`: the same kernel, or the one of another
    device. Its numbers may be others each time if it `changes`. Else why it cannot be one."""
    values = [a.array if type(a) in NARROWED else a for a in args]
    (only_read, updated, _), read, written = accesses
    if read or written:
        return f"kernel {kernel.name} uses variables of its module"
    if (
        any(region.__class__ is Everywhere for region in only_read + updated)
        or reach_of(kernel, args, values) is not None
    ):
        return f"kernel {kernel.name} follows pointers in memory"
    packing = kernel.packing
    block = packing.take(values)
    answer, names = "", dict[str, Any]()
    changing: frozenset[int] = frozenset()
    if changes:
        changing = frozenset(
            i
            for i, each in enumerate(args)
            if isinstance(each, _NUMBERS) and not packing.is_memory(i, each)
        )
        answer, names = packing.written_anew(block, args, changing)
    takes = _taker(args, changing, answer, names)
    if takes is None:
        return "an argument is neither an array of ours without gaps nor a plain number"
    shape = kernel.shape(bound.grid, bound.block, bound.shared_bytes)
    launch = driver.Launch(kernel, shape, block, None)
    place = frame.f_code, frame.f_lasti
    return Call(bound, *place, takes, launch, accesses, kernel.label, bool(changing))


def _taker(
    args: Sequence[Any],
    changing: Collection[int] = (),
    answer: str = "",
    names: Mapping[str, Any] | None = None,
) -> Callable[[Sequence[Any]], Any] | None:
    """A function that tells whether arguments are the same memory and the same numbers, where these
    are not `changing`. None if they cannot be compared.

    Then it returns `answer`, if given: an expression in the arguments a0, a1 and so on and in
    `names`.
    """
    names = dict(names or {})
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
        elif i in changing:
            parts.append(f"{place}.__class__")
            wanted.append(value.__class__)
        elif isinstance(value, (*_NUMBERS, bytes)):
            parts += [f"{place}.__class__", place]
            wanted += [value.__class__, value]
            if not isinstance(value, (int, bytes)) and not value:
                # Zeros of both signs are equal.
                tests.append(f"{place} is value{i}")
                names[f"value{i}"] = value
        else:
            return None
    names["wanted"] = tuple(wanted)
    names["OUT_OF_RANGE"] = OUT_OF_RANGE
    every = "".join(f"a{i}, " for i in range(len(args)))
    # One comparison of tuples, which compares what is one object by identity first.
    source = (
        "def takes(args):\n"
        "    try:\n"
        f"        [{every}] = args\n"
        f"        return {' and '.join([*tests, *filter(None, [answer])])}\n"
        "    except OUT_OF_RANGE:\n"
        "        return False\n"
    ).replace("PARTS", "".join(f"{each}, " for each in parts))
    exec(compile(source, "<arguments of a repeated launch>", "exec"), names)
    takes: Callable[[Sequence[Any]], Any] = names["takes"]
    return takes


def piece_of(steps: Sequence[Step], device: Device) -> Piece:
    """The launches of `steps` as a graph of the driver."""
    return (ChangingPiece if any(step.changes for step in steps) else GraphPiece)(steps, device)


class GraphPiece:
    """Launches that are the same each time, as a graph."""

    is_graph = True

    def __init__(self, steps: Sequence[Step], device: Device) -> None:
        # Loaded once something is repeated.
        from cudasync.graph.parts.device import DevicePart
        from cudasync.graph.segments import Segment

        nodes = _nodes(steps, device)
        self._part = DevicePart(Segment(device, "compute", 0, is_alone=False, nodes=nodes))
        self.name = name_of(len(steps))
        self.accesses = self._part.accesses
        self.names: Steps = self._part.candidates
        self.known = Known()

    def enqueue(
        self, stream: Stream, event: Event | None = None, arguments: Sequence[bytes] = ()
    ) -> None:
        self._part._or_raise().launch(stream, event)


class ChangingPiece(CallByCall):
    """Launches with other numbers each time, as a graph; without damaged data one by one."""

    is_graph = True

    def __init__(self, steps: Sequence[Step], device: Device) -> None:
        # Loaded once something is repeated.
        from cudasync.graph.fault_candidates import Candidates
        from cudasync.graph.parts.changing import ChangingGraph

        super().__init__(steps)
        nodes = _nodes(steps, device)
        self.names = Candidates.of(nodes, range(1, len(nodes) + 1), self.names.salvage)
        self._graph = ChangingGraph(nodes, device, {nodes[at] for at in self.changing})

    def enqueue(
        self, stream: Stream, event: Event | None = None, arguments: Sequence[bytes] = ()
    ) -> None:
        self._graph.launch(arguments, stream, event)


def _nodes(steps: Sequence[Step], device: Device) -> list[Any]:
    """The steps as nodes of a graph, each with the nodes that it comes after."""
    from cudasync.graph.hazards import ordered
    from cudasync.graph.node import Node

    made = [
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
    return list(ordered(made))
