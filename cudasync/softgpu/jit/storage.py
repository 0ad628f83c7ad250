"""Cellar, jit. Where the named memory of a kernel lies.

Shared and local addresses inside a kernel are offsets from the start of the block's shared
window and of the thread's local slab; `cvta` adds the start. Static shared variables come first,
module scope before function scope, and dynamic shared memory begins behind them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.ptx.layout import layout
from cudasync.ptx.types import StateSpace

if TYPE_CHECKING:
    from cudasync.ptx import ir

# Dynamic shared memory and local slabs are aligned as CUDA aligns them at most.
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Storage:
    """Offsets by name; `symbols` holds the place of each .global and .const in Launch.symbols."""

    parameters: dict[str, int]
    parameter_bytes: int
    shared: dict[str, int]
    static_shared_bytes: int
    local: dict[str, int]
    local_bytes: int
    symbols: dict[str, int]


def module_variables(module: ir.Module) -> tuple[ir.Variable, ...]:
    """The variables that a launch must give addresses of."""
    spaces = (StateSpace.GLOBAL, StateSpace.CONST)
    return tuple(variable for variable in module.variables if variable.space in spaces)


def storage(module: ir.Module, kernel: ir.Function) -> Storage:
    """Lay out everything that `kernel` can name."""
    parameters, parameter_bytes = layout(kernel.parameters)
    everywhere = (*module.variables, *kernel.variables)
    shared_variables = [each for each in everywhere if each.space is StateSpace.SHARED]
    static = [each for each in shared_variables if each.count]
    shared, static_bytes = layout(static)
    dynamic = -(-static_bytes // _ALIGNMENT) * _ALIGNMENT
    shared |= {each.name: dynamic for each in shared_variables if not each.count}
    in_local = (StateSpace.LOCAL, StateSpace.PARAM)
    local, local_bytes = layout(each for each in kernel.variables if each.space in in_local)
    return Storage(
        parameters=parameters,
        parameter_bytes=parameter_bytes,
        shared=shared,
        static_shared_bytes=static_bytes,
        local=local,
        local_bytes=-(-local_bytes // _ALIGNMENT) * _ALIGNMENT,
        symbols={each.name: index for index, each in enumerate(module_variables(module))},
    )
