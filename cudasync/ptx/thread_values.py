"""Floor 0. The values of a kernel's registers in every thread of a block of known shape.

Integer instructions are carried out once for each thread. A register has a value if a thread writes
it only once, and the text determines what. Otherwise it has none.

What is the same in all threads and not known before the launch (a parameter, the block's index) is
a symbol. A value is then a sum: numbers by thread, and symbols with factors. Such a sum is kept
modulo 2^32, which is enough for addresses within a block's shared memory.

Registers are those of a function in which each value has its own register.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Final, TypeAlias

from cudasync.ptx import ir
from cudasync.ptx.liveness import defs, uses
from cudasync.ptx.types import ScalarType, StateSpace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

Numbers: TypeAlias = "int | tuple[int, ...]"
"""One number for all threads, or one for each."""

_LOW: Final = (1 << 32) - 1
_WARP: Final = 32
_COMMON: Final = ("%ctaid.", "%nctaid.")


@dataclass(frozen=True, slots=True)
class Value:
    """A sum of `numbers`, not negative, and of symbols, sorted by name, with their factors."""

    numbers: Numbers
    symbols: tuple[tuple[str, int], ...] = ()


class ThreadValues:
    """The values of registers and addresses in the threads of one block."""

    def __init__(
        self, kernel: ir.Function, block: tuple[int, int, int], shared: Mapping[str, int]
    ) -> None:
        """`shared` has the places of variables in the block's shared memory."""
        x, y, z = block
        self.count = x * y * z
        self.everybody = (1 << self.count) - 1
        self._shared = shared
        self._specials = {
            "%tid.x": Value(tuple(t % x for t in range(self.count))),
            "%tid.y": Value(tuple(t // x % y for t in range(self.count))),
            "%tid.z": Value(tuple(t // (x * y) for t in range(self.count))),
            "%laneid": Value(tuple(t % _WARP for t in range(self.count))),
        } | {f"%ntid.{axis}": Value(n) for axis, n in zip("xyz", block, strict=True)}
        self._known: dict[str, Value] = {}
        # Answers of `threads`, by register and the value that is asked for.
        self._passing: dict[tuple[str, bool], int] = {}
        writes: dict[str, int] = {}
        for each in kernel.body:
            for register in defs(each):
                writes[register.name] = writes.get(register.name, 0) + 1
        needed = _needed(kernel.body)
        # Registers are written before they are read, mostly also in the text.
        for each in kernel.body:
            names = [register.name for register in defs(each)]
            if len(names) == 1 and names[0] in needed and writes[names[0]] == 1:
                value = None if each.guard is not None else self._result(each)
                if value is not None:
                    self._known[names[0]] = value

    def address(self, operand: ir.Operand) -> Value | None:
        """The place in shared memory that an address of this state space names, if known."""
        if not isinstance(operand, ir.Address):
            return None
        base = self._value(operand.base)
        return None if base is None else _plus(base, Value(operand.offset & _LOW), 32)

    def by_thread(self, value: Value) -> tuple[int, ...]:
        """The numbers of a value in each thread."""
        numbers = value.numbers
        return (numbers,) * self.count if isinstance(numbers, int) else numbers

    def threads(self, guard: ir.Guard | None, *, fail: bool = False) -> int:
        """The threads, as bits, for which a guard may hold; with `fail`, may not hold."""
        if guard is None:
            return 0 if fail else self.everybody
        value = self._known.get(guard.register.name)
        if value is None:
            return self.everybody
        key = guard.register.name, guard.negated == fail
        if key not in self._passing:
            numbers = self.by_thread(value)
            passing = (1 << t for t, number in enumerate(numbers) if bool(number) == key[1])
            self._passing[key] = sum(passing)
        return self._passing[key]

    def onward(
        self, last: ir.Instruction, successors: Iterable[int], following: int
    ) -> Iterator[tuple[int, int]]:
        """The nodes behind a node that ends in `last`, each with the threads that may go there.

        Threads are bits. `following` is the node of the following instruction.
        """
        successors = tuple(successors)
        is_open = last.guard is None or last.opcode not in ("bra", "ret", "exit")
        for after in successors:
            if is_open or len(successors) == 1:
                yield after, self.everybody
            else:
                yield after, self.threads(last.guard, fail=after == following)

    def _value(self, operand: ir.Operand) -> Value | None:
        match operand:
            case ir.Integer(value=value):
                return Value(value & (1 << 64) - 1)
            case ir.Special(name=name):
                is_common = name.startswith(_COMMON)
                return Value(0, ((name, 1),)) if is_common else self._specials.get(name)
            case ir.Symbol(name=name, offset=offset) if name in self._shared:
                return Value(self._shared[name] + offset)
            case ir.Register(name=name):
                return self._known.get(name)
            case ir.Negated(register=register) if register.name in self._known:
                return Value(_each(lambda n: 1 - n, self._known[register.name].numbers))
        return None

    def _result(self, each: ir.Instruction) -> Value | None:
        if each.opcode == "ld":
            return _parameter(each)
        rule = _RULES.get(each.opcode)
        if rule is None or not each.types or not all(map(_is_whole, each.types)):
            return None
        given = [self._value(operand) for operand in each.operands[1:]]
        values = [value for value in given if value is not None]
        return rule(each, values) if len(values) == len(given) else None


def reaching(
    entry: int, exit_: int, onward: Callable[[int], Iterable[tuple[int, int]]], everybody: int
) -> dict[int, int]:
    """The threads, as bits, that may reach each node of a graph, if `everybody` is at `entry`.

    `onward` has the next nodes of a node, each with the threads that may go there. The node `exit_`
    is left out.
    """
    threads = {entry: everybody}
    waiting = [entry]
    while waiting:
        node = waiting.pop()
        for after, going in onward(node):
            known = threads.get(after, 0)
            now = known | threads[node] & going
            if after != exit_ and (now != known or after not in threads):
                threads[after] = now
                waiting.append(after)
    return threads


def _needed(body: Iterable[ir.Instruction]) -> set[str]:
    """The registers that addresses of memory and guards depend on."""
    found = set()
    backwards = list(body)[::-1]
    for each in backwards:
        if each.guard is not None:
            found.add(each.guard.register.name)
        for operand in each.operands:
            if isinstance(operand, ir.Address) and isinstance(operand.base, ir.Register):
                found.add(operand.base.name)
    for each in backwards:
        if any(register.name in found for register in defs(each)):
            found.update(register.name for register in uses(each))
    return found


def _is_whole(type_: ScalarType) -> bool:
    """Whether this is the type of one integer, or of a predicate."""
    return not type_.is_float and not type_.value.endswith("x2")


def _parameter(each: ir.Instruction) -> Value | None:
    """A word of a parameter is a symbol."""
    place = each.operands[1]
    if each.space is not StateSpace.PARAM or not isinstance(place, ir.Address):
        return None
    is_word = each.vector_size == 1 and each.type.size >= 4 and each.type.is_integer
    if not is_word or not isinstance(place.base, ir.Symbol):
        return None
    return Value(0, ((f"{place.base.name}+{place.offset}", 1),))


def _plus(one: Value, other: Value, bits: int) -> Value | None:
    """The sum in an arithmetic of that many bits."""
    if not one.symbols and not other.symbols:
        return Value(_each(lambda a, b: (a + b) & (1 << bits) - 1, one.numbers, other.numbers))
    if bits < 32:
        return None
    factors = dict(one.symbols)
    for name, factor in other.symbols:
        factors[name] = (factors.get(name, 0) + factor) & _LOW
    symbols = tuple(sorted((name, factor) for name, factor in factors.items() if factor))
    if not symbols and bits > 32:
        return None  # Its upper bits are not known.
    return Value(_each(lambda a, b: (a + b) & _LOW, one.numbers, other.numbers), symbols)


def _times(one: Value, other: Value, bits: int) -> Value | None:
    """The product; symbols are multiplied only by a number that all threads share."""
    if not one.symbols and not other.symbols:
        return Value(_each(lambda a, b: a * b & (1 << bits) - 1, one.numbers, other.numbers))
    if not one.symbols:
        one, other = other, one
    by = other.numbers
    if other.symbols or not isinstance(by, int) or bits < 32:
        return None
    symbols = ((name, factor * by & _LOW) for name, factor in one.symbols)
    return Value(_each(lambda a, b: a * b & _LOW, one.numbers, by), tuple(symbols))


def _each(function: Callable[..., int], *given: Numbers) -> Numbers:
    """Apply a function thread by thread, or once if no operand differs between threads."""
    if all(isinstance(numbers, int) for numbers in given):
        return function(*given)
    columns = (repeat(each) if isinstance(each, int) else each for each in given)
    return tuple(map(function, *columns))


def _read(value: Value, type_: ScalarType) -> Numbers:
    """The numbers as a type takes them."""
    bits = type_.bits
    if not type_.is_signed:
        return _each(lambda n: n & (1 << bits) - 1, value.numbers)
    return _each(lambda n: _signed(n, bits), value.numbers)


def _signed(number: int, bits: int) -> int:
    low = number & (1 << bits) - 1
    return low - (1 << bits) if low >> bits - 1 else low


def _exact(each: ir.Instruction, values: list[Value], function: Callable[..., int]) -> Value | None:
    """A function of numbers alone, in the instruction's type."""
    if any(value.symbols for value in values) or set(each.modifiers) & _INEXACT:
        return None
    mask = (1 << each.type.bits) - 1
    return Value(_each(lambda *n: function(*n) & mask, *(_read(v, each.type) for v in values)))


def _move(each: ir.Instruction, values: list[Value]) -> Value | None:
    (value,) = values
    return value if value.symbols else _exact(each, values, lambda n: n)


def _convert(each: ir.Instruction, values: list[Value]) -> Value | None:
    (value,) = values
    to, of = each.types
    if set(each.modifiers) & _INEXACT:
        return None
    if value.symbols:
        return value if min(to.bits, of.bits) >= 32 else None
    return Value(_each(lambda n: n & (1 << to.bits) - 1, _read(value, of)))


def _add(each: ir.Instruction, values: list[Value]) -> Value | None:
    if set(each.modifiers) & _INEXACT:
        return None
    return _plus(values[0], values[1], each.type.bits)


def _subtract(each: ir.Instruction, values: list[Value]) -> Value | None:
    bits = each.type.bits
    negative = _times(values[1], Value((1 << bits) - 1), bits)
    return None if negative is None else _add(each, [values[0], negative])


def _multiply(each: ir.Instruction, values: list[Value]) -> Value | None:
    modifiers = set(each.modifiers)
    if "hi" in modifiers or modifiers & _INEXACT:
        return None
    if "wide" not in modifiers:
        return _times(values[0], values[1], each.type.bits)
    read = [value if value.symbols else _wide(value, each.type) for value in values[:2]]
    return _times(read[0], read[1], 2 * each.type.bits)


def _wide(value: Value, type_: ScalarType) -> Value:
    mask = (1 << 2 * type_.bits) - 1
    return Value(_each(lambda n: n & mask, _read(value, type_)))


def _multiply_and_add(each: ir.Instruction, values: list[Value]) -> Value | None:
    product = _multiply(each, values)
    bits = each.type.bits * (2 if "wide" in each.modifiers else 1)
    return None if product is None else _plus(product, values[2], bits)


def _shift_left(each: ir.Instruction, values: list[Value]) -> Value | None:
    by = values[1].numbers
    if values[1].symbols or not isinstance(by, int) or by >= each.type.bits:
        return None
    return _times(values[0], Value(1 << by), each.type.bits)


def _shift_right(each: ir.Instruction, values: list[Value]) -> Value | None:
    by, most = values[1].numbers, each.type.bits - 1
    if values[1].symbols or not isinstance(by, int) or by > most:
        return None
    return _exact(each, values[:1], lambda n: n >> by)


def _divide(each: ir.Instruction, values: list[Value]) -> Value | None:
    """`div` and `rem` round towards zero."""
    divisor = values[1].numbers
    if isinstance(divisor, tuple) or not divisor:
        return None
    is_rest = each.opcode == "rem"

    def divided(a: int, b: int) -> int:
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return a - quotient * b if is_rest else quotient

    return _exact(each, values, divided)


def _select(each: ir.Instruction, values: list[Value]) -> Value | None:
    if any(value.symbols for value in values):
        return None
    one, other, chooses = (value.numbers for value in values)
    return Value(_each(lambda a, b, p: a if p else b, one, other, chooses))


def _compare(each: ir.Instruction, values: list[Value]) -> Value | None:
    """`setp` without a second result; with `.and`, `.or` or `.xor`, of a third operand, too."""
    if not isinstance(each.operands[0], ir.Register) or any(v.symbols for v in values):
        return None
    compares = [_COMPARED[name] for name in each.modifiers if name in _COMPARED]
    joins = [_JOINED[name] for name in each.modifiers if name in _JOINED]
    if len(compares) != 1 or len(joins) != len(values) - 2:
        return None
    numbers = _each(lambda a, b: int(compares[0](a, b)), *(_read(v, each.type) for v in values[:2]))
    return Value(_each(joins[0], numbers, values[2].numbers) if joins else numbers)


def _exactly(function: Callable[..., int]) -> Callable[[ir.Instruction, list[Value]], Value | None]:
    return lambda each, values: _exact(each, values, function)


_INEXACT: Final = frozenset({"sat", "cc", "relu"})
_JOINED: Final[dict[str, Callable[[int, int], int]]] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}
_COMPARED: Final[dict[str, Callable[[int, int], bool]]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge, "lo": operator.lt, "ls": operator.le,
    "hi": operator.gt, "hs": operator.ge,
}  # fmt: skip
_RULES: Final[dict[str, Callable[[ir.Instruction, list[Value]], Value | None]]] = {
    "mov": _move,
    "cvt": _convert,
    "add": _add,
    "sub": _subtract,
    "mul": _multiply,
    "mad": _multiply_and_add,
    "shl": _shift_left,
    "shr": _shift_right,
    "div": _divide,
    "rem": _divide,
    "selp": _select,
    "setp": _compare,
    "not": _exactly(operator.invert),
    "neg": _exactly(operator.neg),
    "min": _exactly(min),
    "max": _exactly(max),
} | {name: _exactly(function) for name, function in _JOINED.items()}
