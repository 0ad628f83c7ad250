"""Floor 0. Addresses as polynomials of special registers, parameters and loop counts.

A *form* is a polynomial over symbols: special registers (`%tid.x`), parameters by name, variables
by name, and trip counts of loops (`@` and a register's name, any whole number). A register has a
form if it is written once. It also has one if it starts at some value and advances by multiples of
a step that all threads share. Any other register has none. An index that wraps in 32 bits has the
form that it would have without wrapping.

Registers are those of a function in which each value has its own register.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from cudasync.ptx import ir
from cudasync.ptx.liveness import defs
from cudasync.ptx.types import StateSpace

if TYPE_CHECKING:
    from collections.abc import Iterable

Form: TypeAlias = "dict[tuple[str, ...], int]"
"""Coefficients by the symbols that they are multiplied with; the constant part has the key ()."""

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
        self._known[name] = None  # In case the walk returns here meanwhile.
        writes = self._writes.get(name, [])
        found = None
        if writes and all(each.guard is None for each in writes):
            found = self._result(writes[0]) if len(writes) == 1 else self._counter(name, writes)
        self._known[name] = found
        return found

    def _counter(self, name: str, writes: list[ir.Instruction]) -> Form | None:
        """The form of a register that starts at some value and advances by multiples of a step."""
        own = (f"={name}",)
        known = dict(self._known)
        self._known[name] = {own: 1}
        results = [self._result(each) for each in writes]
        self._known = known  # Forms found meanwhile contain `own`.
        starts: list[Form] = []
        steps: list[Form] = []
        for each in results:
            if each is None:
                return None
            rest = {term: count for term, count in each.items() if term != own}
            if any(own[0] in term for term in rest) or each.get(own, 0) not in (0, 1):
                return None
            (steps if own in each else starts).append(rest)
        steps = [each for each in steps if each]
        if not starts or any(each != starts[0] for each in starts):
            return None
        if not steps:
            return starts[0]
        by = min(steps, key=lambda each: sum(map(abs, each.values())))
        if not all(_is_multiple(each, by) for each in steps):
            return None
        if any("%tid" in symbol for symbol in symbols_of([by])):
            return None
        return _checked(_sum(starts[0], _product(by, {(f"@{name}",): 1})))

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
    """The symbol for a word of a parameter."""
    return f"{name}+{offset}:{size}"


def _is_multiple(form: Form, of: Form) -> bool:
    if set(form) != set(of):
        return False
    ratios = {form[term] / of[term] for term in of}
    return len(ratios) == 1 and ratios.pop().is_integer()


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
    """All symbols that occur in the forms."""
    return {symbol for form in forms for term in form for symbol in term}
