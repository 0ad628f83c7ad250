"""Cellar. The places of symbols: offsets in shared, local and parameter memory, or addresses.

A symbol of a window (.shared, .local, .param) is its offset in the window, as the PTX ISA says, and
`cvta` adds the window's base. Symbols of .global and .const are addresses, found at launch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Symbol
from cudasync.ptx.layout import layout
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.interface.reserved_shared_memory import bytes_before
from cudasync.softgpu.oracle.emission.activation_record import LOCAL_OFFSET
from cudasync.softgpu.oracle.emission.local_frames import LocalFrames
from cudasync.softgpu.oracle.emission.special_registers import block_field
from cudasync.softgpu.oracle.emission.state_records import BlockState, ThreadState
from cudasync.softgpu.semantics.memory_visibility import callee, may_wait, with_callers
from cudasync.softgpu.semantics.shared_variables import shared_of_module

if TYPE_CHECKING:
    from cudasync.ptx.ir import Function, Instruction, Module, Variable
    from cudasync.softgpu.oracle.emission.emitter import Emitter

S = StateSpace


class Places:
    """The place of every symbol that a kernel and the functions that it calls can name."""

    parameter_bytes: int
    static_shared_bytes: int
    # Bytes of the shared window before all variables.
    reserved_shared_bytes: int
    local_bytes: int

    def __init__(self, module: Module, kernel: Function, variables: tuple[Variable, ...]) -> None:
        self._index = {variable.name: index for index, variable in enumerate(variables)}
        # Keys: the name of the declaring function ("" for the module), and the symbol's name.
        self._space: dict[tuple[str, str], StateSpace] = {}
        self._offset: dict[tuple[str, str], int] = {}
        self._function = kernel
        functions = [kernel, *(f for f in module.functions if not f.is_kernel)]
        self._functions = {function.name: function for function in functions}
        seeing = [f.name for f in functions if any(may_wait(each) for each in f.body)]
        self._seeing = with_callers(seeing, self._functions)
        scoped = [("", v) for v in module.variables]
        scoped += [(f.name, v) for f in functions for v in f.variables]
        self._space |= {(scope, v.name): v.space for scope, v in scoped}
        self._space |= {(f.name, p.name): S.PARAM for f in functions for p in f.parameters}
        self._space |= {(f.name, r.name): S.PARAM for f in functions for r in f.results}
        offsets, self.parameter_bytes = layout(kernel.parameters)
        self._offset |= {(kernel.name, name): offset for name, offset in offsets.items()}
        shared = self._shared(module, scoped)
        size = self._lay_out([(scope, v) for scope, v in shared if not v.is_extern])
        dynamic = [(scope, v) for scope, v in shared if v.is_extern]
        if dynamic:
            # Dynamic memory starts after all static memory, at its strictest alignment.
            strictest = max(16, *(v.align for _, v in dynamic))
            size = -(-size // strictest) * strictest
        self._offset |= {(scope, v.name): size for scope, v in dynamic}
        self.static_shared_bytes = size
        reserved = bytes_before(functions, [v for _, v in shared])
        self.reserved_shared_bytes = -(-reserved // 16) * 16
        for scope, v in shared:
            self._offset[scope, v.name] += self.reserved_shared_bytes
        self.frames = LocalFrames(module, kernel, self._functions)
        self.local_bytes = self.frames.thread_bytes

    def _shared(
        self, module: Module, scoped: list[tuple[str, Variable]]
    ) -> list[tuple[str, Variable]]:
        """The shared variables that the kernel and the functions that it reaches can name."""
        shared = [(scope, v) for scope, v in scoped if v.space is S.SHARED]
        # Functions that the kernel cannot reach are emitted as well, and never run.
        self._offset |= {(scope, v.name): 0 for scope, v in shared}
        reached = {self._function.name: self._function}
        waiting = [self._function]
        while waiting:
            body = waiting.pop().body
            if any(each.opcode == "call" and callee(each) is None for each in body):
                reached = self._functions
                break
            found = [self._functions[name] for name in map(callee, body) if name in self._functions]
            waiting += [each for each in found if each.name not in reached]
            reached |= {each.name: each for each in found}
        own = shared_of_module(module, reached.values())
        return [(scope, v) for scope, v in shared if scope in reached or v in own]

    def _lay_out(self, scoped: list[tuple[str, Variable]]) -> int:
        """Lay out variables in sequence, each at its alignment; return the total size."""
        end = 0
        for scope, variable in scoped:
            start = -(-end // variable.align) * variable.align
            self._offset[scope, variable.name] = start
            end = start + variable.size
        return end

    def function(self, name: str) -> Function | None:
        """The function of the module with this name."""
        return self._functions.get(name)

    def may_see(self, call: Instruction) -> bool:
        """Whether a call may read memory that other threads write."""
        callee = call.operands[1]
        return not isinstance(callee, Symbol) or callee.name in self._seeing

    def enter(self, function: Function) -> None:
        """From here on, symbols have their meaning in `function`."""
        self._function = function

    def _scope(self, name: str) -> tuple[str, str]:
        inner = (self._function.name, name)
        return inner if inner in self._space else ("", name)

    def space(self, name: str) -> StateSpace:
        return self._space[self._scope(name)]

    def is_in_frame(self, name: str) -> bool:
        """Whether `name` lies in local memory: a variable, or a parameter with an address."""
        return self.frames.offset(self._function, name) is not None

    def symbol(self, emitter: Emitter, symbol: Symbol) -> str:
        """The symbol as a 64-bit number: an offset in its window, or an address."""
        local = self.frames.offset(self._function, symbol.name)
        if local is not None:
            offset, is_own = local
            if not is_own:
                return str(offset + symbol.offset)
            frame = emitter.field(emitter.base(), LOCAL_OFFSET, "i64")
            return emitter.value(f"add i64 {frame}, {offset + symbol.offset}")
        scope = self._scope(symbol.name)
        if scope in self._offset:
            return str(self._offset[scope] + symbol.offset)
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
