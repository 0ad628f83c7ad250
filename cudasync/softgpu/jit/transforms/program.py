"""Cellar, jit. Prepares a kernel and the device functions it may call for lowering.

Local memory of a thread is one slab: the kernel's own variables first, then those of each callee,
at the end of its caller's. Recursion has a stack of fixed size behind the slab, as on a device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cudasync.ptx.compare_and_swap import mark_guesses
from cudasync.softgpu.interface.race_records import is_ordering, sites
from cudasync.softgpu.jit.transforms.access_units import access_unit
from cudasync.softgpu.jit.transforms.calling_convention import through_memory
from cudasync.softgpu.jit.transforms.inlining import inline
from cudasync.softgpu.jit.transforms.memory_layout import Storage, alignment, shared_layout, storage
from cudasync.softgpu.jit.transforms.passed_values import passed_values
from cudasync.softgpu.jit.transforms.shared_scopes import told_apart
from cudasync.softgpu.jit.transforms.slabs import Slab
from cudasync.softgpu.jit.transforms.suspending_functions import (
    Waiting,
    may_stop,
    stops_inside,
    waiting_functions,
)
from cudasync.softgpu.jit.transforms.webs import split_webs
from cudasync.softgpu.semantics.memory_visibility import (
    callee,
    callees,
    is_collective,
    is_fence,
    may_wait,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.ptx import ir

# The stack of a thread for recursive functions; CUDA's default is 1 KiB.
RECURSION_BYTES = 4096
# The minimum that a call takes from that stack. It bounds the call depth on the host's own stack.
LEAST_FRAME_BYTES = 32
# In instructions. A kernel that exceeds this with all code that its loops might wait for takes too
# long to compile.
_MOST_WRITTEN_OUT = 2048


@dataclass(frozen=True, slots=True)
class Program:
    """A kernel and, in `functions`, its device functions by name."""

    module: ir.Module
    kernel: ir.Function
    functions: dict[str, ir.Function]
    storages: dict[str, Storage]
    # The start of each function's body in `instructions`, which concatenates all bodies.
    origins: dict[str, int]
    instructions: tuple[ir.Instruction, ...]
    # For each instruction that may touch memory, by its number: a small number, see `race_calls`.
    sites: Mapping[int, int]
    # The size of the smallest access to memory outside the block, see `access_units`.
    unit: int
    # Whether an instruction orders accesses of other threads: a fence, an acquire or a release.
    has_fences: bool
    # Bytes of local memory for each thread.
    slab_bytes: int
    # The alignment of slabs and of the shared window.
    alignment: int
    waiting: Waiting

    @property
    def slab(self) -> Slab:
        """The local memory of each thread."""
        return Slab(self.slab_bytes, self.alignment)

    @property
    def kernel_storage(self) -> Storage:
        return self.storages[self.kernel.name]

    def parts(self) -> tuple[ir.Function, ...]:
        """The kernel, then every function."""
        return (self.kernel, *self.functions.values())


def prepare(module: ir.Module, kernel: ir.Function) -> Program:
    """Collect all functions that `kernel` can reach, and lay out their memory."""
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
    passed = passed_values(parts)
    storages = {
        each.name: storage(module, each, shared, multiple, passed[each.name]) for each in parts
    }
    origins: dict[str, int] = {}
    instructions: list[ir.Instruction] = []
    for each in parts:
        mark_guesses(each)
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
        unit=access_unit(instructions),
        has_fences=any(is_fence(each) or is_ordering(each) for each in instructions),
        slab_bytes=-(-_depth(ready.name, graph, frames) // multiple) * multiple,
        alignment=multiple,
        waiting=waiting_functions(functions),
    )


def _with_its_stops(kernel: ir.Function, functions: Mapping[str, ir.Function]) -> ir.Function:
    """The kernel with all its suspension points in its own body.

    If a waiting loop may hold some lanes of a warp, warp-wide instructions are suspension points.
    """
    must = may_stop
    whole = inline(kernel, functions, must)
    waiting = waiting_functions(functions)
    if len(whole.body) > _MOST_WRITTEN_OUT:
        # Then inline only functions with a suspension midway; less is known of the other loops.
        must = partial(stops_inside, waiting=waiting)
        whole = inline(kernel, functions, must)
    if not any(may_wait(each) or callee(each) in waiting for each in whole.body):
        return whole
    return inline(kernel, functions, lambda f: must(f) or any(map(is_collective, f.body)))


def _depth(name: str, graph: dict[str, list[str]], frames: dict[str, int]) -> int:
    """The bytes that `name` and its deepest chain of calls need.

    Visits each function once, without recursion of its own: chains may be long, and a function
    may be called from many places.
    """
    found: dict[str, int] = {}
    path = [(name, iter(graph[name]))]
    entered = {name}
    while path:
        here, rest = path[-1]
        callee = next(rest, None)
        if callee is None:
            path.pop()
            # A callee that is still on the path is recursive.
            below = (found.get(each, RECURSION_BYTES) for each in graph[here])
            own = max(frames[here], LEAST_FRAME_BYTES) if path else frames[here]
            found[here] = own + max(below, default=0)
        elif callee not in entered:
            entered.add(callee)
            path.append((callee, iter(graph[callee])))
    return found[name]
