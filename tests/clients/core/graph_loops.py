"""Graphs of cuda.core: captured with a fork, a loop and memory; built by hand and updated."""

from __future__ import annotations

import numpy as np
from cuda.core import (
    Device,
    GraphMemoryResource,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Program,
    ProgramOptions,
    launch,
)
from cuda.core.graph import GraphBuilder, GraphDefinition

CODE = r"""
extern "C" __device__ __cudart_builtin__ void CUDARTAPI cudaGraphSetConditional(
    cudaGraphConditionalHandle handle, unsigned int value);

extern "C" __global__ void add(int* data, int value, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) data[i] += value;
}
extern "C" __global__ void sum(int* target, const int* left, const int* right, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) target[i] = left[i] + right[i];
}
extern "C" __global__ void count_down(cudaGraphConditionalHandle handle, int* left) {
    *left -= 1;
    cudaGraphSetConditional(handle, *left > 0);
}
"""

device = Device()
device.set_current()
stream = device.create_stream()
arch = f"sm_{device.arch}"
program = Program(CODE, "c++", ProgramOptions(std="c++17", arch=arch))
module = program.compile("ptx", name_expressions=("add", "sum", "count_down"))
add, total, count_down = (module.get_kernel(name) for name in ("add", "sum", "count_down"))

count = 1000
config = LaunchConfig(grid=(count + 255) // 256, block=256)
single = LaunchConfig(grid=1, block=1)
pinned = LegacyPinnedMemoryResource()


def array():
    buffer = pinned.allocate(4 * count)
    view = np.from_dlpack(buffer).view(np.int32)
    view[:] = 0
    return buffer, view


left, left_view = array()
right, right_view = array()
both, both_view = array()

# A capture that forks and joins.
builder = device.create_graph_builder().begin_building()
launch(builder, config, add, left, 1, count)
builder, other = builder.split(2)
launch(builder, config, add, left, 10, count)
launch(other, config, add, right, 100, count)
builder = GraphBuilder.join(builder, other)
launch(builder, config, total, both, left, right, count)
seen = []
builder.callback(lambda: seen.append("called"))
graph = builder.end_building().complete()
for _ in range(3):
    graph.launch(stream)
stream.sync()
assert (both_view == 333).all(), both_view[:4]
assert seen == ["called"] * 3

# A loop, and memory that the graph allocates itself.
left_view[0] = 5
resource = GraphMemoryResource(device)
builder = device.create_graph_builder().begin_building()
room = resource.allocate(4 * count, stream=builder)
condition = builder.create_condition(default_value=1)
body = builder.while_loop(condition).begin_building()
launch(body, config, add, right, 1, count)
launch(body, single, count_down, condition.handle, left)
body.end_building()
launch(builder, config, total, room, right, right, count)
launch(builder, config, total, both, room, room, count)
room.close(stream=builder)
graph = builder.end_building().complete()
graph.launch(stream)
stream.sync()
assert (both_view == 4 * 305).all(), both_view[:4]
resource.trim()
assert resource.attributes.used_mem_current == 0

# Built by hand, then updated.
definition = GraphDefinition()
cleared = definition.memset(both, 0, 4 * count)
node = cleared.launch(config, add, both, 7, count)
out, out_view = array()
node.memcpy(out, both, 4 * count)
assert len(definition.nodes()) == 3
assert len(definition.edges()) == 2
graph = definition.instantiate()
graph.launch(stream)
stream.sync()
assert (out_view == 7).all()
graph[node].update(config=config, kernel=add, args=(both, 9, count))
graph.launch(stream)
stream.sync()
assert (out_view == 9).all()
graph[node].disable()
graph.launch(stream)
stream.sync()
assert (out_view == 0).all()
again = GraphDefinition()
node = again.memset(both, 1, count, 1).launch(config, add, both, 2, count)
again.debug_dot_print("/dev/null")
node.destroy()
print("graph_loops: a fork, a loop, memory and an update give what they should")
