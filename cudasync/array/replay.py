"""Floor 4. Launches on arrays that are replayed: see `engine/replay`.

A launch is compared by the regions of its arrays, and by the class and bits of its numbers. Whoever
launches adds what else decides what it does: its kernel, forms, layouts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.memory.pool import Scratch
from cudasync.driver.arguments.argument_packing import OUT_OF_RANGE
from cudasync.engine.log.histories import Known
from cudasync.engine.op import OpKind
from cudasync.engine.replay.sequence import CallByCall, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from cudasync.driver import Device, Event, Stream
    from cudasync.engine.batch.failed_step import Steps
    from cudasync.engine.replay.sequence import Piece, Step

NUMBERS = (bool, int, float, np.number, np.bool_)


def taker(
    values: Sequence[Any],
    kind: type,
    changing: Collection[int] = (),
    answer: str = "",
    names: Mapping[str, Any] | None = None,
    classes: Mapping[int, type] | None = None,
    *,
    is_laid_out: bool = False,
) -> Callable[[Sequence[Any]], Any] | None:
    """A function that tells whether arguments are the same memory and the same numbers as these,
    where the numbers are not `changing`. None if they cannot be compared.

    Then it returns `answer`, if given: an expression in the arguments a0, a1 and so on and in
    `names`. Arrays are of the type `kind`. Views with gaps can be compared if whoever launches
    knows the layout of each array: `is_laid_out`. The arguments with `classes` have the values in
    their `array`.
    """
    names = dict(names or {})
    parts: list[str] = []
    wanted: list[Any] = []
    tests = ["(PARTS) == wanted"]
    for i, value in enumerate(values):
        place = f"a{i}"
        if classes and i in classes:
            parts.append(f"{place}.__class__")
            wanted.append(classes[i])
            place = f"{place}.array"
        found: Any = value
        if type(value) is Scratch:
            parts.append(f"{place}.region")
            wanted.append(value.region)
        elif type(value) is kind and (is_laid_out or not found.form.has_gaps):
            parts += [f"{place}.form", f"{place}.region"]
            wanted += [found.form, found.region]
            if found.form.has_gaps:
                parts.append(f"{place}.ptr")
                wanted.append(found.ptr)
        elif i in changing:
            parts.append(f"{place}.__class__")
            wanted.append(value.__class__)
        elif isinstance(value, (*NUMBERS, bytes)):
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
    every = "".join(f"a{i}, " for i in range(len(values)))
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


def numbers_among(values: Sequence[Any]) -> frozenset[int]:
    """The positions of numbers."""
    return frozenset(i for i, each in enumerate(values) if isinstance(each, NUMBERS))


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
