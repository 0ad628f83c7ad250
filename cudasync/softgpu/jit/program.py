"""Cellar, jit. A kernel with the device functions it may call, made ready to be lowered.

Local memory of a thread is one slab: the kernel's own variables first, then those of the function
it calls, and so on, each at the end of its caller's. Recursion has a stack of fixed size behind
that, as it has on a device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Symbol
from cudasync.softgpu.jit.routines import through_memory
from cudasync.softgpu.jit.storage import Storage, shared_layout, storage
from cudasync.softgpu.jit.webs import split_webs

if TYPE_CHECKING:
    from cudasync.ptx import ir

# What a thread may use for functions that call themselves: CUDA's default is 1 KiB.
RECURSION_BYTES = 4096
# The least that a call takes from that, which bounds the depth of calls on the host's own stack.
LEAST_FRAME_BYTES = 32


@dataclass(frozen=True, slots=True)
class Program:
    """`functions` holds the device functions by name; the kernel is apart from them."""

    module: ir.Module
    kernel: ir.Function
    functions: dict[str, ir.Function]
    storages: dict[str, Storage]
    # Where the body of each function begins in `instructions`, which is all of them in a row.
    origins: dict[str, int]
    instructions: tuple[ir.Instruction, ...]
    # Of local memory, for each thread.
    slab_bytes: int

    @property
    def kernel_storage(self) -> Storage:
        return self.storages[self.kernel.name]

    def parts(self) -> tuple[ir.Function, ...]:
        """The kernel, then every function."""
        return (self.kernel, *self.functions.values())


def callees(function: ir.Function) -> list[str]:
    """The names of the functions that `function` calls."""
    return [
        instruction.operands[1].name
        for instruction in function.body
        if instruction.opcode == "call" and isinstance(instruction.operands[1], Symbol)
    ]


def prepare(module: ir.Module, kernel: ir.Function) -> Program:
    """Collect what `kernel` can reach, and lay it out."""
    defined = {each.name: each for each in module.functions if not each.is_declaration}
    functions: dict[str, ir.Function] = {}
    waiting = callees(kernel)
    while waiting:
        name = waiting.pop(0)
        if name in defined and name not in functions:
            functions[name] = split_webs(through_memory(defined[name], module))
            waiting += callees(defined[name])
    ready = split_webs(through_memory(kernel, module))
    parts = [ready, *functions.values()]
    shared = shared_layout(module, parts)
    storages = {each.name: storage(module, each, shared) for each in parts}
    origins: dict[str, int] = {}
    instructions: list[ir.Instruction] = []
    for each in parts:
        origins[each.name] = len(instructions)
        instructions += each.body
    frames = {name: places.local_bytes for name, places in storages.items()}
    graph = {each.name: [name for name in callees(each) if name in functions] for each in parts}
    return Program(
        module=module,
        kernel=ready,
        functions=functions,
        storages=storages,
        origins=origins,
        instructions=tuple(instructions),
        slab_bytes=_depth(ready.name, graph, frames, ()),
    )


def _depth(
    name: str, graph: dict[str, list[str]], frames: dict[str, int], above: tuple[str, ...]
) -> int:
    """The bytes that `name` and its deepest chain of calls need."""
    if name in above:
        return RECURSION_BYTES
    own = max(frames[name], LEAST_FRAME_BYTES) if above else frames[name]
    below = [_depth(each, graph, frames, (*above, name)) for each in graph[name]]
    return own + max(below, default=0)
