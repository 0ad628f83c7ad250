"""Cellar, jit. A kernel with the device functions it may call, made ready to be lowered.

Local memory of a thread is one slab: the kernel's own variables first, then those of the function
it calls, and so on, each at the end of its caller's. Recursion has a stack of fixed size behind
that, as it has on a device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cudasync.softgpu.interface.race_records import sites
from cudasync.softgpu.jit.transforms.calling_convention import through_memory
from cudasync.softgpu.jit.transforms.inlining import inline
from cudasync.softgpu.jit.transforms.memory_layout import Storage, alignment, shared_layout, storage
from cudasync.softgpu.jit.transforms.shared_scopes import told_apart
from cudasync.softgpu.jit.transforms.suspending_functions import (
    Waiting,
    may_stop,
    stops_inside,
    waiting_functions,
)
from cudasync.softgpu.jit.transforms.webs import split_webs
from cudasync.softgpu.semantics.memory_visibility import callee, callees, is_collective, may_wait

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.ptx import ir

# What a thread may use for functions that call themselves: CUDA's default is 1 KiB.
RECURSION_BYTES = 4096
# The least that a call takes from that, which bounds the depth of calls on the host's own stack.
LEAST_FRAME_BYTES = 32
# Of instructions. A kernel that would be longer, with all that its loops might wait for, takes too
# long to compile.
_MOST_WRITTEN_OUT = 2048


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
    # Of those that may touch memory: a small number for each, by its number, see `race_calls`.
    sites: Mapping[int, int]
    # Of local memory, for each thread.
    slab_bytes: int
    # Of that and of the shared window.
    alignment: int
    waiting: Waiting

    @property
    def kernel_storage(self) -> Storage:
        return self.storages[self.kernel.name]

    def parts(self) -> tuple[ir.Function, ...]:
        """The kernel, then every function."""
        return (self.kernel, *self.functions.values())


def prepare(module: ir.Module, kernel: ir.Function) -> Program:
    """Collect what `kernel` can reach, and lay it out."""
    defined = {
        each.name: through_memory(each, module)
        for each in module.functions
        if not each.is_declaration and not each.is_kernel
    }
    defined = told_apart(module, kernel, defined)
    whole = _with_its_stops(through_memory(kernel, module), defined)
    functions: dict[str, ir.Function] = {}
    waiting = callees(whole)
    while waiting:
        name = waiting.pop(0)
        if name in defined and name not in functions:
            functions[name] = split_webs(defined[name])
            waiting += callees(defined[name])
    ready = split_webs(whole)
    parts = [ready, *functions.values()]
    shared = shared_layout(module, parts)
    multiple = alignment(module, parts)
    storages = {each.name: storage(module, each, shared, multiple) for each in parts}
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
        sites=sites(instructions),
        slab_bytes=-(-_depth(ready.name, graph, frames) // multiple) * multiple,
        alignment=multiple,
        waiting=waiting_functions(functions),
    )


def _with_its_stops(kernel: ir.Function, functions: Mapping[str, ir.Function]) -> ir.Function:
    """The kernel with all in its own body at which its warps may stop.

    Where some lanes may be left behind in a loop that waits, warp-wide instructions are stops.
    """
    must = may_stop
    whole = inline(kernel, functions, must)
    waiting = waiting_functions(functions)
    if len(whole.body) > _MOST_WRITTEN_OUT:
        # Then only what a warp stops in the middle of: less is known of the loops around the rest.
        must = partial(stops_inside, waiting=waiting)
        whole = inline(kernel, functions, must)
    if not any(may_wait(each) or callee(each) in waiting for each in whole.body):
        return whole
    return inline(kernel, functions, lambda f: must(f) or any(map(is_collective, f.body)))


def _depth(name: str, graph: dict[str, list[str]], frames: dict[str, int]) -> int:
    """The bytes that `name` and its deepest chain of calls need.

    Each function is looked at once, without recursion of our own: chains may be long, and a
    function may be called from many places.
    """
    found: dict[str, int] = {}
    path = [(name, iter(graph[name]))]
    entered = {name}
    while path:
        here, rest = path[-1]
        callee = next(rest, None)
        if callee is None:
            path.pop()
            # One that is still being looked at is called again from within itself.
            below = (found.get(each, RECURSION_BYTES) for each in graph[here])
            own = max(frames[here], LEAST_FRAME_BYTES) if path else frames[here]
            found[here] = own + max(below, default=0)
        elif callee not in entered:
            entered.add(callee)
            path.append((callee, iter(graph[callee])))
    return found[name]
