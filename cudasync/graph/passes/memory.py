"""Floor 3, passes. Temporaries whose lives do not overlap share memory.

The life of a temporary is the set of nodes that touch it. Two lives do not overlap if, by the
existing edges, all nodes that touch one come before the maker of the other, in every order that the
graph allows. So sharing adds no order, and the graph stays as parallel as before.

The pass allocates nothing: some of the memory that the recording took holds all temporaries
(`packing`). The rest returns to its owner, once the recording that could be instantiated again is
gone.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from cudasync.graph.hazards import ordered
from cudasync.graph.passes.liveness import NOTHING
from cudasync.graph.passes.packing import Temporary, packed
from cudasync.graph.placement.memory_partition import everything
from cudasync.graph.retargeting import Aim, Move, aimed, is_unclear, touches

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudasync.engine.hazards.interval_map import Region
    from cudasync.graph.node import Node
    from cudasync.graph.passes.liveness import Live
    from cudasync.graph.passes.packing import Block

# The ancestors of all nodes take the square of this, in bits; temporaries are compared pairwise.
_MOST = 10_000
_MOST_TEMPORARIES = 2_000


def run(nodes: Sequence[Node], live: Live = NOTHING) -> tuple[Sequence[Node], str]:
    """Pack temporaries into each other's memory."""
    if not any(node.expression is not None for node in everything(nodes)):
        return nodes, "there are no temporaries"
    found = temporaries(nodes, live)
    before = sum(each.size for each in found)
    blocks = packed(found)
    after = sum(block.size for block in blocks)
    moved = list(nodes)
    for place, aim in _aims(blocks).items():
        (moved[place],) = aimed([nodes[place]], aim)
    said = f"{len(found)} temporaries take {after} bytes, {before} before"
    return ordered(_without_the_rest(moved)), said


def _aims(blocks: Iterable[Block]) -> dict[int, Aim]:
    """For each node that touches moved memory, by its index, the aim at the new addresses."""
    aims: dict[int, Aim] = {}
    for block in blocks:
        for each, offset in block.inside:
            by = block.start + offset - each.region.start
            users = each.users if by else 0
            while users:
                place = users.bit_length() - 1
                users ^= 1 << place
                aims.setdefault(place, Aim()).moves.append(Move(*each.region, by))
    return aims


def temporaries(nodes: Sequence[Node], live: Live = NOTHING) -> list[Temporary]:
    """The temporaries whose memory can be moved, because all nodes that touch it can be aimed."""
    makers = _makers(nodes, live)
    if len(nodes) > _MOST or not 1 < len(makers) <= _MOST_TEMPORARIES:
        return []
    ancestors: dict[Node, int] = {}
    place = {node: at for at, node in enumerate(nodes)}
    users = dict.fromkeys(makers, 0)
    fixed: set[Region] = set()
    regions = sorted(makers)
    for node in nodes:
        behind = 0
        for other in node.before:
            behind |= ancestors[other] | 1 << place[other]
        ancestors[node] = behind
        for region in _touched(node, regions):
            users[region] |= 1 << place[node]
            is_whole = node is makers[region] or users[region] & 1 << place[makers[region]]
            is_inside = all(
                region.start <= each.start and each.end <= region.end
                for part in node.hazards[0]
                for each in part
                if each.start < region.end and region.start < each.end
            )
            can_be_moved = (
                node.can_be_aimed and not node.is_alone and not is_unclear(node, (region,))
            )
            if not (can_be_moved and is_whole and is_inside):
                fixed.add(region)
    return [
        Temporary(region, node.device, place[node], users[region], ancestors[node])
        for region, node in makers.items()
        if region not in fixed
    ]


def _makers(nodes: Sequence[Node], live: Live) -> dict[Region, Node]:
    """The maker of each region, without regions that overlap already: nodes of an inner graph."""
    made = [
        (node.expression.result.region, node)
        for node in nodes
        if live.is_temporary(node.expression)
        and node.expression.result.region in node.hazards[0][2]
    ]
    made.sort(key=lambda each: each[0])
    makers: dict[Region, Node] = {}
    end = -1
    for at, (region, node) in enumerate(made):
        is_apart = region.start >= end and (
            at + 1 == len(made) or region.end <= made[at + 1][0].start
        )
        if is_apart:
            makers[region] = node
        end = max(end, region.end)
    return makers


def _touched(node: Node, regions: Sequence[Region]) -> list[Region]:
    if node.is_alone:
        return [each for each in regions if touches(node, each)]
    found: dict[Region, None] = {}
    for part in node.hazards[0]:
        for each in part:
            at = bisect_right(regions, each.start, key=_end)
            while at < len(regions) and regions[at].start < each.end:
                found[regions[at]] = None
                at += 1
    return list(found)


def _end(region: Region) -> int:
    return region.end


def _without_the_rest(nodes: Sequence[Node]) -> list[Node]:
    """The same steps; they no longer keep temporaries alive that no node touches."""
    used = {each.start for node in nodes for part in node.hazards[0] for each in part}
    kept = {node: _all_kept(node) for node in nodes}
    gone = {
        each.expression.result.region.start
        for _, inside in kept.values()
        for each in inside
        if each.expression is not None and each.expression.is_temporary
    } - used
    return [
        node.keeping([each for each in kept[node][0] if getattr(each, "ptr", None) not in gone])
        for node in nodes
    ]


def _all_kept(node: Node) -> tuple[list[Any], list[Node]]:
    """The objects that a node keeps, directly or through the nodes it was made of; those nodes."""
    found: dict[int, Any] = {}
    seen: dict[Node, None] = {}
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen[each] = None
        for thing in each.kept:
            if type(thing) is type(node):
                waiting.append(thing)
            else:
                found[id(thing)] = thing
    return list(found.values()), list(seen)
