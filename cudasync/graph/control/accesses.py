"""Floor 3, control flow. The accesses of a block, as of one step of the program around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.batch.union import Union
from cudasync.engine.hazards.variable import resolve_one

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.driver import DeviceBuffer
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.graph.control.flag import Flag
    from cudasync.graph.node import Node

NOTHING: Accesses = ((), (), ()), (), ()


def of_body(nodes: Sequence[Node]) -> Accesses:
    """The accesses of `nodes`, run one after the other, once or more often."""
    union = Union()
    for node in nodes:
        union.add(node.hazards)
    return union.accesses()


def counted(inside: Accesses, counter: DeviceBuffer) -> Accesses:
    """The accesses of rounds that a device counts in `counter`."""
    (only_read, updated, written), read, also_written = inside
    return (only_read, updated, (*written, resolve_one(counter, "counter"))), read, also_written


def decided(flag: Flag, bodies: Sequence[Accesses]) -> Accesses:
    """The accesses if `flag` decides which of the bodies runs, if any.

    Memory that may be written might keep its old value, so it counts as read, too.
    """
    union = Union()
    union.add((((flag.region,), (), ()), (), ()))
    for (only_read, updated, written), read, also_written in bodies:
        union.add(((only_read, updated + written, ()), (*read, *also_written), also_written))
    return union.accesses()
