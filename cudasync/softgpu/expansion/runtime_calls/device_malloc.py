"""Cellar. malloc and free of device code, on a heap that is a variable of the module.

As on a device, the heap has 8 MiB by default, allocations outlive the launch, and malloc returns 0
when the heap is full. Freed memory is not given out again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Address, Integer, Symbol, Vector
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.expansion.rewriter import room
from cudasync.softgpu.semantics.memory_visibility import callee, callees

if TYPE_CHECKING:
    from collections.abc import Container

    from cudasync.ptx.ir import Instruction, Module, Variable
    from cudasync.softgpu.expansion.rewriter import Parts

T = ScalarType
_NAME = "heap of kernels"
_CAPACITY = 8 << 20
# The header before the first allocation: the number of bytes handed out.
_HEADER_BYTES = 16


def heap() -> Variable:
    """The variable that holds the heap."""
    return room(_NAME, _HEADER_BYTES + _CAPACITY)


def allocates(module: Module, defined: Container[str]) -> bool:
    """Whether a function of `module` calls malloc, and the module does not define malloc."""
    return "malloc" not in defined and any("malloc" in callees(f) for f in module.functions)


def rewrite(parts: Parts, instruction: Instruction, defined: Container[str]) -> bool:
    """Take apart a call of malloc or free, unless the module defines the function."""
    name = callee(instruction)
    if name not in ("malloc", "free") or name in defined:
        return False
    results, _, arguments = instruction.operands[:3]
    assert isinstance(results, Vector)
    assert isinstance(arguments, Vector)
    if len(arguments.elements) != 1:
        return False
    (given,) = arguments.elements
    if name == "free":
        return True
    source = Address(given) if isinstance(given, Symbol) else given
    size = parts.compute("ld.param.u64" if isinstance(given, Symbol) else "mov.u64", source)
    most = parts.compute("min.u64", size, Integer(_CAPACITY + 1))
    rounded = parts.compute("and.b64", parts.compute("add.u64", most, Integer(15)), Integer(-16))
    start = parts.compute("mov.u64", Symbol(_NAME))
    before = parts.register(T.B64)
    parts.settle("atom.global.add.u64", before, Address(start), rounded)
    end = parts.compute("add.u64", before, rounded)
    fits = parts.compute("setp.le.u64", end, Integer(_CAPACITY), type_=T.PRED)
    fails = parts.compute("and.pred", parts.compute("not.pred", fits), parts.active())
    back = parts.compute("neg.s64", rounded)
    parts.emit_under(fails, "red.global.add.u64", (Address(start), back))
    first = parts.compute("add.u64", start, Integer(_HEADER_BYTES))
    place = parts.compute("add.u64", first, before)
    found = parts.compute("selp.b64", place, Integer(0), fits)
    parts.give(results, found, T.B64)
    return True
