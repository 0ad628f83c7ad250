"""Cellar. Where symbols lie: offsets in shared, local and parameter memory, addresses elsewhere.

A symbol of a window (.shared, .local, .param) is its offset in it, as the PTX ISA has it, and
`cvta` adds the window's base. Symbols of .global and .const are addresses, found at launch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.layout import layout
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.oracle.specials import block_field
from cudasync.softgpu.oracle.state import BlockState, ThreadState

if TYPE_CHECKING:
    from cudasync.ptx.ir import Function, Module, Symbol, Variable
    from cudasync.softgpu.oracle.emitter import Emitter

S = StateSpace


class Places:
    """The place of every symbol that one kernel can name."""

    parameter_bytes: int
    static_shared_bytes: int
    local_bytes: int

    def __init__(self, module: Module, kernel: Function, variables: tuple[Variable, ...]) -> None:
        visible = (*module.variables, *kernel.variables)
        self._space = {variable.name: variable.space for variable in visible}
        self._space |= {parameter.name: S.PARAM for parameter in kernel.parameters}
        self._index = {variable.name: index for index, variable in enumerate(variables)}
        parameters, self.parameter_bytes = layout(kernel.parameters)
        shared = [v for v in visible if v.space is S.SHARED]
        static, size = layout([v for v in shared if not v.is_extern])
        strictest = max((v.align for v in shared), default=1)
        # Dynamic shared memory starts where its strictest alignment allows, after the static.
        dynamic_start = -(-size // max(strictest, 16)) * max(strictest, 16)
        has_dynamic = any(v.is_extern for v in shared)
        self.static_shared_bytes = dynamic_start if has_dynamic else size
        local, local_bytes = layout([v for v in visible if v.space is S.LOCAL])
        self.local_bytes = -(-local_bytes // 16) * 16
        self._offset = parameters | static | local
        self._offset |= {v.name: self.static_shared_bytes for v in shared if v.is_extern}

    def space(self, name: str) -> StateSpace:
        return self._space[name]

    def symbol(self, emitter: Emitter, symbol: Symbol) -> str:
        """The symbol as a 64-bit number: an offset in its window, or an address."""
        if symbol.name in self._offset:
            return str(self._offset[symbol.name] + symbol.offset)
        if symbol.name not in self._index:
            emitter.refuse(f"{symbol.name} is not a variable that this kernel can address")
        table = block_field(emitter, BlockState.symbols.offset, "ptr")
        address = emitter.field(table, 8 * self._index[symbol.name], "i64")
        return emitter.value(f"add i64 {address}, {symbol.offset}")


def window(emitter: Emitter, space: StateSpace) -> tuple[str, str]:
    """The base address and the size of the calling thread's window, as i64."""
    if space is S.SHARED:
        return (
            block_field(emitter, BlockState.shared.offset, "i64"),
            block_field(emitter, BlockState.shared_bytes.offset, "i64"),
        )
    if space is S.PARAM:
        return (
            block_field(emitter, BlockState.parameters.offset, "i64"),
            block_field(emitter, BlockState.parameter_bytes.offset, "i64"),
        )
    assert space is S.LOCAL
    base = emitter.field("%frame", ThreadState.local.offset, "i64")
    return base, str(emitter.places.local_bytes)
