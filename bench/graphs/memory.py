"""The memory of a graph's temporaries, relative to the least that their lifetimes allow.

`memory.chain`: each array is made of the previous one. `memory.random`: each is made of any two of
the latest. All are temporaries. The least is the largest total that can be in use at once, in an
order that the graph allows. The timing covers instantiation with and without the packing pass.
"""

from __future__ import annotations

import sys
from random import Random
from typing import TYPE_CHECKING

import numpy as np

import cudasync as cs
from bench.checkout import ROOT
from bench.harness.measurement import SEED, Case, Contender, repeat
from cudasync.graph.passes import memory, packing

sys.path.insert(1, str(ROOT / "tests"))

from helpers.graphs.antichains import heaviest

if TYPE_CHECKING:
    from bench.harness.measurement import Session

UNIT = 64
MOST_UNITS = 8
OF_THE_LEAST = {"chain": 1.1, "random": 1.5}
# These passes are off, because fused kernels would leave fewer temporaries.
KEEPS = ("dead", "fusion", "reductions")
PACKED, UNPACKED = "with the pass", "without"


def add_memory(session: Session) -> None:
    """Count bytes for both shapes, and time the pass."""
    count = session.parameter("temporaries", small=12, large=120)
    for shape, most in OF_THE_LEAST.items():
        name = f"bench_graph.memory.{shape}"
        if not session.wants(name):
            continue
        graph = recorded(shape, count, Random(SEED))
        before, now, least = bytes_of(graph)
        session.measure(f"{name}: recorded", before / least, "of the least")
        session.measure(
            f"{name}: packed", now / least, "of the least", None if session.small else most
        )
        ways = {UNPACKED: (*KEEPS, "memory"), PACKED: KEEPS}
        session.add(
            Case(
                name=name,
                contenders=[
                    Contender(
                        way,
                        repeat(lambda g=graph, w=without: g.instantiate(without=w)),
                        lambda g=graph, w=without: len(g.instantiate(without=w).nodes),
                    )
                    for way, without in ways.items()
                ],
                baseline=UNPACKED,
                operations=count,
                unit="node",
            )
        )


def recorded(shape: str, count: int, random: Random) -> cs.RecordedGraph:
    """Sums of arrays of any sizes, all of which are released."""
    outside = cs.zeros(MOST_UNITS * UNIT, np.int32)
    with cs.graph() as graph:
        arrays = [outside, outside]
        for _ in range(count):
            reach = 1 if shape == "chain" else min(6, len(arrays))
            one, other = (arrays[-random.randint(1, reach)] for _ in range(2))
            size = random.randint(1, MOST_UNITS) * UNIT
            if size > min(one.size, other.size):
                one, other = one[:1], outside
            arrays.append(one[:size] + other[:size])
    return graph


def bytes_of(graph: cs.RecordedGraph) -> tuple[int, int, int]:
    """The bytes of a graph's temporaries: as recorded, packed, and the least."""
    found = memory.temporaries(graph.instantiate(without=(*KEEPS, "memory")).nodes)
    sizes = [each.size for each in found]
    least = heaviest(sizes, lambda one, other: found[one].is_over_before(found[other]))
    return sum(sizes), sum(block.size for block in packing.packed(found)), least
