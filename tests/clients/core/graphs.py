"""A graph built from captured launches, with a fork and a join, launched several times."""

from __future__ import annotations

import numpy as np
from cuda.core import (
    Device,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Program,
    ProgramOptions,
    launch,
)
from cuda.core.graph import GraphBuilder

SOURCE = r"""
extern "C" __global__ void add(int *cell, int value) { atomicAdd(cell, value); }
extern "C" __global__ void times(int *cell, int value) { *cell *= value; }
"""

device = Device()
device.set_current()
options = ProgramOptions(arch=f"sm_{device.arch}")
module = Program(SOURCE, "c++", options=options).compile("cubin")
add, times = module.get_kernel("add"), module.get_kernel("times")

memory = LegacyPinnedMemoryResource().allocate(4)
cell = np.from_dlpack(memory).view(np.int32)
cell[0] = 0
one = LaunchConfig(grid=1, block=1)
stream = device.create_stream()

builder = device.create_graph_builder().begin_building()
launch(builder, one, add, memory, np.int32(1))
left, right = builder.split(2)
launch(left, one, add, memory, np.int32(2))
launch(right, one, add, memory, np.int32(3))
joined = GraphBuilder.join(left, right)
launch(joined, one, times, memory, np.int32(2))
graph = joined.end_building().complete()
stream.sync()
assert cell[0] == 0  # nothing has run

graph.upload(stream)
for _ in range(3):
    graph.launch(stream)
stream.sync()
assert cell[0] == ((0 + 6) * 2 + 6) * 2 * 2 + 12
graph.close()
stream.close()
print("graphs: four launches in a graph, three times")
