"""Floor 0. Addresses as sums of products: what a kernel computes them from, where that is linear.

A *form* is a polynomial over symbols: special registers (`%tid.x`), parameters by name, variables
by name, and turns of loops (`@` and a register's name, which counts from 0). Registers that are
written once, or once and then by a constant step in a loop, have forms; all else has none. Nothing
is said of wrapping: an index that wraps in 32 bits has the form that it would have without.

Registers are those of a function whose values are told apart (one register for each value).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from cudasync.ptx import ir
from cudasync.ptx.liveness import defs
from cudasync.ptx.types import StateSpace

if TYPE_CHECKING:
    from collections.abc import Iterable

Form: TypeAlias = "dict[tuple[str, ...], int]"
"""Coefficients by the symbols they are multiplied with; of the constant part by ()."""

_MOST_TERMS: Final = 24
_SPECIALS: Final = ("%tid.", "%ntid.", "%ctaid.", "%nctaid.")
_COPIES: Final = frozenset({"mov", "cvt", "cvta"})


class Forms:
    """The forms of a kernel's registers and addresses."""

    def __init__(self, kernel: ir.Function) -> None:
        self._writes: dict[str, list[ir.Instruction]] = {}
        for each in kernel.body:
            for register in defs(each):
                self._writes.setdefault(register.name, []).append(each)
        self._known: dict[str, Form | None] = {}

    def address(self, operand: ir.Operand) -> Form | None:
        """The form of an address operand; None where it has none."""
        if not isinstance(operand, ir.Address):
            return None
        base = self._operand(operand.base)
        return None if base is None else _sum(base, {(): operand.offset})

    def _operand(self, operand: ir.Operand) -> Form | None:
        match operand:
            case ir.Integer(value=value):
                return {(): value}
            case ir.Special(name=name) if name.startswith(_SPECIALS):
                return {(name,): 1}
            case ir.Symbol(name=name):
                return {(name,): 1}
            case ir.Register(name=name):
                return self._register(name)
        return None

    def _register(self, name: str) -> Form | None:
        if name in self._known:
            return self._known[name]
        self._known[name] = None  # For who comes back here meanwhile.
        writes = self._writes.get(name, [])
        found = None
        if len(writes) == 1 and writes[0].guard is None:
            found = self._result(writes[0])
        elif len(writes) == 2:
            found = self._counter(name, writes)
        self._known[name] = found
        return found

    def _counter(self, name: str, writes: list[ir.Instruction]) -> Form | None:
        """A register that begins somewhere, and goes on by the same step again and again."""
        steps = [each for each in writes if _steps(each, name, self._writes)]
        if len(steps) != 1 or any(each.guard is not None for each in writes):
            return None
        (step,) = steps
        (first,) = (each for each in writes if each is not step)
        start = self._result(first)
        step = _step_itself(step, name, self._writes)
        by = self._step(step, name)
        if start is None or by is None or any("%tid" in s for term in by for s in term):
            return None
        turn: Form = {(f"@{name}",): 1}
        return _checked(_sum(start, _product(by, turn)))

    def _step(self, step: ir.Instruction, name: str) -> Form | None:
        others = [
            each
            for each in step.operands[1:]
            if not (isinstance(each, ir.Register) and each.name == name)
        ]
        return self._operand(others[0]) if len(others) == 1 else None

    def _result(self, each: ir.Instruction) -> Form | None:
        opcode, operands = each.opcode, each.operands
        if opcode == "ld":
            if each.space is not StateSpace.PARAM or not isinstance(operands[1], ir.Address):
                return None
            base = operands[1].base
            if not isinstance(base, ir.Symbol) or isinstance(operands[0], ir.Vector):
                return None
            return {(parameter(base.name, operands[1].offset, each.type.size),): 1}
        if each.types and each.types[0].is_float:
            return None
        given = [self._operand(operand) for operand in operands[1:]]
        if any(form is None for form in given):
            return None
        forms = [form for form in given if form is not None]
        match opcode:
            case _ if opcode in _COPIES and len(forms) == 1:
                return forms[0]
            case "add":
                return _checked(_sum(*forms))
            case "sub":
                return _checked(_sum(forms[0], _product(forms[1], {(): -1})))
            case "mul" if "hi" not in each.modifiers:
                return _checked(_product(*forms))
            case "mad" if "hi" not in each.modifiers:
                return _checked(_sum(_product(forms[0], forms[1]), forms[2]))
            case "shl" if set(forms[1]) <= {()}:
                return _checked(_product(forms[0], {(): 1 << forms[1].get((), 0)}))
        return None


def parameter(name: str, offset: int, size: int) -> str:
    """The symbol of a word of a parameter."""
    return f"{name}+{offset}:{size}"


def _steps(each: ir.Instruction, name: str, writes: dict[str, list[ir.Instruction]]) -> bool:
    found = _step_itself(each, name, writes)
    return found.opcode == "add" and any(
        isinstance(o, ir.Register) and o.name == name for o in found.operands[1:]
    )


def _step_itself(
    each: ir.Instruction, name: str, writes: dict[str, list[ir.Instruction]]
) -> ir.Instruction:
    """What a move into the register moves, if that is made by one instruction; else itself."""
    source = each.operands[1] if each.opcode == "mov" else None
    if isinstance(source, ir.Register) and source.name != name:
        made = writes.get(source.name, [])
        if len(made) == 1:
            return made[0]
    return each


def _sum(first: Form, second: Form) -> Form:
    found = dict(first)
    for term, count in second.items():
        found[term] = found.get(term, 0) + count
    return {term: count for term, count in found.items() if count}


def _product(first: Form, second: Form) -> Form:
    found: Form = {}
    for one, count in first.items():
        for other, more in second.items():
            term = tuple(sorted(one + other))
            found[term] = found.get(term, 0) + count * more
    return {term: count for term, count in found.items() if count}


def _checked(form: Form) -> Form | None:
    return form if len(form) <= _MOST_TERMS else None


def symbols_of(forms: Iterable[Form]) -> set[str]:
    """All that forms are made of."""
    return {symbol for form in forms for term in form for symbol in term}
