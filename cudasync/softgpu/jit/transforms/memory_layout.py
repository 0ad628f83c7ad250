"""Cellar, jit. Lays out the named memory of a kernel.

Shared and local addresses inside a kernel are offsets from the start of the block's shared window
and of the thread's local slab; `cvta` adds the start. Static shared variables come first, module
scope before function scope, and dynamic shared memory begins behind them. The system's reserved
memory lies before all of them, if the kernel asks for it (`reserved_shared_memory`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.ptx.layout import layout
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.interface.reserved_shared_memory import bytes_before
from cudasync.softgpu.semantics.shared_variables import shared_of_module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.ptx import ir

# The alignment of dynamic shared memory and local slabs, unless a variable needs more.
_ALIGNMENT = 16
# Stricter alignments are ignored: every thread would pay for them.
_MOST_ALIGNMENT = 4096
_IN_LOCAL = (StateSpace.LOCAL, StateSpace.PARAM)
_IN_SCRATCH = (StateSpace.SHARED, StateSpace.LOCAL)


@dataclass(frozen=True, slots=True)
class Storage:
    """Offsets by name.

    `arguments` numbers the parameters and results of a device function; its caller decides their
    offsets. Those in `passed` have no offset, nor have variables there: see `passed_values`.
    `symbols` holds the index of each .global and .const in Launch.symbols.
    """

    parameters: dict[str, int]
    parameter_bytes: int
    arguments: dict[str, int]
    passed: frozenset[str]
    shared: dict[str, int]
    static_shared_bytes: int
    # The part of the shared window before the variables.
    reserved_shared_bytes: int
    local: dict[str, int]
    local_bytes: int
    symbols: dict[str, int]


def module_variables(module: ir.Module) -> tuple[ir.Variable, ...]:
    """The variables that a launch must provide addresses for."""
    spaces = (StateSpace.GLOBAL, StateSpace.CONST)
    return tuple(variable for variable in module.variables if variable.space in spaces)


@dataclass(frozen=True, slots=True)
class Shared:
    """Offsets of the shared variables of a kernel and its functions; the bytes of the static
    variables, and the reserved bytes before them."""

    offsets: dict[str, int]
    static_bytes: int
    reserved_bytes: int


def shared_layout(module: ir.Module, parts: Sequence[ir.Function]) -> Shared:
    """Lay out the shared window of a kernel and its functions."""
    own = [each for part in parts for each in part.variables if each.space is StateSpace.SHARED]
    variables = [*shared_of_module(module, parts), *own]
    shared, static_bytes = layout([each for each in variables if each.count])
    dynamic = -(-static_bytes // _ALIGNMENT) * _ALIGNMENT
    shared |= {each.name: dynamic for each in variables if not each.count}
    reserved = bytes_before(parts, variables)
    if reserved:
        reserved = -(-reserved // _ALIGNMENT) * _ALIGNMENT
        shared = {name: reserved + offset for name, offset in shared.items()}
    return Shared(shared, static_bytes, reserved)


def alignment(module: ir.Module, parts: Sequence[ir.Function]) -> int:
    """The alignment of local slabs and the shared window: that of their strictest variable."""
    variables = [*module.variables, *(each for part in parts for each in part.variables)]
    strictest = max((v.align for v in variables if v.space in _IN_SCRATCH), default=_ALIGNMENT)
    return min(_MOST_ALIGNMENT, max(_ALIGNMENT, strictest))


def storage(
    module: ir.Module,
    function: ir.Function,
    shared: Shared,
    alignment: int,
    passed: frozenset[str],
) -> Storage:
    """Lay out everything that `function` can name; local slabs are multiples of `alignment`."""
    parameters: dict[str, int] = {}
    arguments: dict[str, int] = {}
    parameter_bytes = 0
    if function.is_kernel:
        parameters, parameter_bytes = layout(function.parameters)
    else:
        given = (*function.parameters, *function.results)
        arguments = {each.name: number for number, each in enumerate(given)}
    in_local = [each for each in function.variables if each.space in _IN_LOCAL]
    local, local_bytes = layout(each for each in in_local if each.name not in passed)
    return Storage(
        parameters=parameters,
        parameter_bytes=parameter_bytes,
        arguments=arguments,
        passed=passed,
        shared=shared.offsets,
        static_shared_bytes=shared.static_bytes,
        reserved_shared_bytes=shared.reserved_bytes,
        local=local,
        local_bytes=-(-local_bytes // alignment) * alignment,
        symbols={each.name: index for index, each in enumerate(module_variables(module))},
    )
