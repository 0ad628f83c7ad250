"""Floor 3. Binds values to the arguments of a program, which gives an instance.

An array takes the place of its slot in all launches. The program is then ordered and optimised
anew, because other memory may overlap. If a function refers to the slot, the array is copied in and
out instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.errors import CudaError
from cudasync.graph.child_graphs import expanded
from cudasync.graph.device_graph import UncapturableError
from cudasync.graph.hazards import ordered
from cudasync.graph.instance import Instance, accesses_of
from cudasync.graph.passes import optimised
from cudasync.graph.retargeting import Aim, Move, aimed, is_unclear, touches
from cudasync.graph.staging import Staged

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cudasync.engine.hazards.interval_map import Region
    from cudasync.graph.arguments import Argument
    from cudasync.graph.executable_reuse import Shelf
    from cudasync.graph.node import Node


def bound(
    nodes: Sequence[Node],
    arguments: Mapping[str, Argument],
    values: Mapping[str, Any],
    without: Collection[str],
    shelf: Shelf | None = None,
) -> Instance:
    """An instance of the program with these values, with executables from the shelf where possible.

    Raises ValueError if an argument that must be copied overlaps memory that the graph touches.
    """
    again, staged, lines = on_values(nodes, arguments, values)
    done, said = optimised(again, without)
    while True:
        try:
            return Instance(done, [*lines, *said], staged, shelf)
        except UncapturableError as error:
            # Only a call shows what a function enqueues.
            left = error.node
            said.append(f"the driver cannot capture {left.name}, so the engine does it: {error}")
            done = _left_to_the_engine(done, left)
        except CudaError as error:
            # Only the driver knows what it accepts inside of a conditional node.
            if error.sticky or not any(map(_is_conditional, done)):
                raise
            done, said = optimised(again, [*without, "conditionals"])
            said.append(
                f"the driver refused conditional nodes, so the engine runs the blocks: {error}"
            )


def _left_to_the_engine(nodes: Sequence[Node], left: Node) -> tuple[Node, ...]:
    """The program with this node, which may be in a block, as an op of its own."""
    made = []
    for node in nodes:
        if node is left:
            made.append(node.uncaptured())
        elif node.control is not None:
            bodies = [_left_to_the_engine(body, left) for body in node.control.bodies]
            made.append(node.controlling(node.control.with_bodies(bodies)))
        else:
            made.append(node)
    return ordered(made)


def _is_conditional(node: Node) -> bool:
    """True for a block that runs on a device, or that contains one."""
    control = node.control
    return control is not None and (
        node.device is not None or any(_is_conditional(n) for body in control.bodies for n in body)
    )


def on_values(
    nodes: Sequence[Node], arguments: Mapping[str, Argument], values: Mapping[str, Any]
) -> tuple[Sequence[Node], list[Staged], list[str]]:
    """The program on these values, with children expanded; the arguments to copy in and out; a line
    of the report for each argument. Raises as `bound` does."""
    nodes = expanded(nodes)
    aim = Aim()
    copied: list[Argument] = []
    lines: list[str] = []
    for each in arguments.values():
        if not each.is_array:
            aim.put(each.slot, values[each.name])
            continue
        users = [node for node in nodes if touches(node, each.region)]
        why = _obstacle(nodes, users, each.region)
        if why is None:
            aim.moves.append(Move.between(each.region, values[each.name].region))
            lines.append(f"argument {each.name}: in place, in {len(users)} nodes")
        else:
            copied.append(each)
            lines.append(f"argument {each.name}: copied in and out, for {why}")
    again = ordered(aimed(nodes, aim)) if arguments else nodes
    accesses = accesses_of(again)
    staged = [Staged(each, values[each.name], accesses) for each in copied]
    _raise_if_mixed(again, staged, values)
    return again, staged, lines


def _obstacle(nodes: Sequence[Node], users: Sequence[Node], region: Region) -> str | None:
    """Why the nodes cannot be aimed at another place of `region`; None if they can."""
    for node in users:
        if not node.can_be_aimed:
            return f"node {node.index} ({node.name}) is a function that refers to it"
    for node in nodes:
        if is_unclear(node, (region,)):
            return (
                f"node {node.index} ({node.name}) gets an address as a value which is a border of "
                "this memory and of its neighbour: pass an array"
            )
    return None


def unused(nodes: Sequence[Node], arguments: Mapping[str, Argument]) -> set[str]:
    """The numbers and functions that no node takes unchanged. A number that the recording computed
    with is part of the program, with its first value."""
    aim = Aim()
    for each in arguments.values():
        if not each.is_array:
            aim.put(each.slot, each.first)
    aimed(expanded(nodes), aim)
    return {
        name for name, each in arguments.items() if not each.is_array and not aim.is_used(each.slot)
    }


def _raise_if_mixed(
    nodes: Sequence[Node], staged: Sequence[Staged], values: Mapping[str, Any]
) -> None:
    """Raise ValueError if a copied argument overlaps memory that the graph uses otherwise."""
    regions: list[tuple[str, Region, bool]] = [
        (f"node {node.index} ({node.name})", region, at > 0)
        for node in nodes
        for at, part in enumerate(node.hazards[0])
        for region in part
    ]
    for each in staged:
        region = values[each.name].region
        others = [(f"argument {o.name}", values[o.name].region, o.is_written) for o in staged]
        del others[list(staged).index(each)]
        for who, other, is_written in (*regions, *others):
            if (is_written or each.is_written) and _meet(region, other):
                raise ValueError(
                    f"argument {each.name} overlaps what {who} accesses, and the launch would "
                    f"copy it (see exe.report()): record the graph with these arrays"
                )


def _meet(one: Region, other: Region) -> bool:
    return one.start < other.end and other.start < one.end
