"""Graph definitions of cuda.core: nodes of every type, read back, rewired and updated."""

from __future__ import annotations

import ctypes

import numpy as np
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions
from cuda.core.graph import GraphCompleteOptions, GraphDefinition

CODE = r"""
extern "C" __device__ __cudart_builtin__ void CUDARTAPI cudaGraphSetConditional(
    cudaGraphConditionalHandle handle, unsigned int value);

extern "C" __global__ void add(int* data, int value) { data[threadIdx.x] += value; }
extern "C" __global__ void count_down(cudaGraphConditionalHandle handle, int* left) {
    *left -= 1;
    cudaGraphSetConditional(handle, *left > 0);
}
"""

device = Device()
device.set_current()
stream = device.create_stream()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
module = Program(CODE, "c++", options).compile("ptx", name_expressions=("add", "count_down"))
add, count_down = module.get_kernel("add"), module.get_kernel("count_down")
pinned = LegacyPinnedMemoryResource()
config, single = LaunchConfig(grid=1, block=16), LaunchConfig(grid=1, block=1)
memory = pinned.allocate(64)
view = np.from_dlpack(memory).view(np.int32)


def run(definition, options=None):
    view[:] = 0
    graph = definition.instantiate(options)
    graph.launch(stream)
    stream.sync()
    return graph


# The graph's own memory, from its allocation to its free.
definition = GraphDefinition()
made = definition.allocate(64)
filled = made.memset(made.dptr, np.uint8(0), 64)
added = filled.launch(config, add, made.dptr, np.int32(5))
copied = added.memcpy(memory, made.dptr, 64)
copied.deallocate(made.dptr)
assert (made.bytesize, made.device_id, filled.width) == (64, device.device_id, 64)
assert added.grid == (1, 1, 1)
assert added.block == (16, 1, 1)
assert copied.dst == int(memory.handle)
assert set(added.pred) == {filled}
assert len(definition.edges()) == 4
run(definition)
assert (view == 5).all()

# A join, events, host functions, a child graph, and the properties of these nodes.
definition, seen = GraphDefinition(), []
event, other = device.create_event(), device.create_event()
first = definition.launch(config, add, memory, np.int32(1))
recorded = first.join(definition.empty()).record(event)
waited = recorded.wait(event)
called = waited.callback(lambda: seen.append(1))
inner = GraphDefinition()
inner.launch(config, add, memory, np.int32(10))
inside = called.embed(inner)
graph = run(definition)
assert (view == 11).all()
assert seen == [1]
changed = GraphDefinition()
changed.launch(config, add, memory, np.int32(20))
graph[inside].update(changed)
graph[called].update(lambda: seen.append(2))
graph[recorded].update(other)
graph[waited].update(other)
view[:] = 0
graph.launch(stream)
stream.sync()
assert (view == 21).all()
assert seen == [1, 2]
first.update(args=(memory, np.int32(2)))
inside.update(changed)
run(definition, GraphCompleteOptions(use_node_priority=True))
assert (view == 22).all()

# A native function with its own bytes.
native = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda text: seen.append(ctypes.string_at(text)))
definition = GraphDefinition()
definition.callback(native, user_data=b"abc\0")
run(definition)
assert seen[-1] == b"abc"

# A loop and branches.
left = pinned.allocate(4)
np.from_dlpack(left).view(np.int32)[0] = 4
definition = GraphDefinition()
condition = definition.create_condition(1)
loop = definition.while_loop(condition)
turn = loop.body.launch(config, add, memory, np.int32(1))
turn.launch(single, count_down, condition.handle, left)
branch = loop.if_else(definition.create_condition(0))
branch.then.launch(config, add, memory, np.int32(100))
branch.else_.launch(config, add, memory, np.int32(200))
chosen = branch.switch(definition.create_condition(1), 2)
chosen.branches[1].launch(config, add, memory, np.int32(1000))
run(definition)
assert (view == 1204).all()

# Add and remove edges and nodes.
definition = GraphDefinition()
a, b, c = definition.empty(), definition.empty(), definition.empty()
c.pred = {a, b}
a.succ.add(b)
assert definition.edges() == {(a, b), (a, c), (b, c)}
c.pred.discard(b)
b.destroy()
assert definition.edges() == {(a, c)}
print("graph_definitions: every node does what it should")
