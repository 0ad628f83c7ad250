"""Floor 0. Numbers, and the constant expressions that PTX allows in their place.

From the PTX ISA, section "Constants": C's operators on 64-bit integers. Floats come alone or with
a sign; expressions of floats do not occur.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Float, Integer
from cudasync.ptx.types import ScalarType

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.ptx.parsing.cursor import Cursor

_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)[Uu]?", re.ASCII)
_FLOAT_BITS = re.compile(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})", re.ASCII)
_DECIMAL = re.compile(r"[0-9.]+(?:[eE][+-]?[0-9]+)?", re.ASCII)
_SIGN_BIT = {ScalarType.F32: 1 << 31, ScalarType.F64: 1 << 63}

# A longer digit string cannot be a 64-bit value, in any base.
_LONGEST_NUMBER = 70
_DEEPEST = 24
_WORD = 1 << 64

# The operators that bind most loosely come first. All operators group to the left.
_LEVELS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: int(bool(a) or bool(b))},
    {"&&": lambda a, b: int(bool(a) and bool(b))},
    {"|": lambda a, b: a | b},
    {"^": lambda a, b: a ^ b},
    {"&": lambda a, b: a & b},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {
        "<=": lambda a, b: int(a <= b),
        ">=": lambda a, b: int(a >= b),
        "<": lambda a, b: int(a < b),
        ">": lambda a, b: int(a > b),
    },
    {
        "<<": lambda a, b: a << b if 0 <= b < _WORD.bit_length() else 0,
        ">>": lambda a, b: a >> b if 0 <= b < _WORD.bit_length() else 0,
    },
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {
        "*": lambda a, b: a * b,
        "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) is (b < 0) else -1),
        "%": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
    },
)
_ENDS = frozenset({",", ";", "]", "}", ")"})
_TWO_CHARACTERS = frozenset({"||", "&&", "==", "!=", "<=", ">=", "<<", ">>"})


def number(word: str) -> Integer | Float | None:
    """The constant that `word` spells without its sign, or None."""
    if len(word) > _LONGEST_NUMBER:
        return None
    if match := _INTEGER.fullmatch(word):
        value = _integer(match[1])
        return Integer(value) if value < _WORD else None
    if match := _FLOAT_BITS.fullmatch(word):
        if match[1]:
            return Float(int(match[1], 16), ScalarType.F32)
        return Float(int(match[2], 16), ScalarType.F64)
    if _DECIMAL.fullmatch(word):
        try:
            return Float(int.from_bytes(struct.pack(">d", float(word))), ScalarType.F64)
        except ValueError:
            return None
    return None


def _integer(digits: str) -> int:
    if digits[:2] in ("0x", "0X", "0b", "0B"):
        return int(digits, 0)
    return int(digits, 8 if digits[0] == "0" else 10)


def begins_constant(word: str) -> bool:
    """Whether a number, or an expression of numbers, begins with `word`."""
    return word[:1] in "0123456789-+~(" or (word[:1] == "." and word[1:2].isdecimal())


def constant(cursor: Cursor) -> Integer | Float:
    """Step over a number, a number with a sign, or an expression."""
    index = cursor.index
    negative = cursor.take("-")
    if not negative:
        cursor.take("+")
    found = number(cursor.word)
    if isinstance(found, Float):
        cursor.index += 1
        return negated(found) if negative else found
    cursor.index = index
    return Integer(expression(cursor))


def negated(value: Float) -> Float:
    """The float with the other sign."""
    return Float(value.bits ^ _SIGN_BIT[value.type], value.type)


def expression(cursor: Cursor, depth: int = 0) -> int:
    """Step over an expression of integers and return its value."""
    found = number(cursor.word)
    if isinstance(found, Integer) and cursor.words[cursor.index + 1] in _ENDS:
        # Nearly always there is a single number.
        cursor.index += 1
        return found.value
    value = _binary(cursor, 0, depth)
    if not cursor.take("?"):
        return value
    chosen = expression(cursor, depth + 1)
    cursor.expect(":")
    other = expression(cursor, depth + 1)
    return chosen if value else other


def _binary(cursor: Cursor, level: int, depth: int) -> int:
    if level == len(_LEVELS):
        return _unary(cursor, depth)
    value = _binary(cursor, level + 1, depth)
    while (operator := _operator(cursor)) in _LEVELS[level]:
        cursor.index += len(operator)
        index = cursor.index
        right = _binary(cursor, level + 1, depth)
        if not right and operator in "/%":
            cursor.fail("division by zero", index)
        value = _wrapped(_LEVELS[level][operator](value, right))
    return value


def _operator(cursor: Cursor) -> str:
    """The operator here: one word, or two words that form one operator."""
    word = cursor.word
    if word and word + cursor.words[cursor.index + 1] in _TWO_CHARACTERS:
        return word + cursor.words[cursor.index + 1]
    return word


def _unary(cursor: Cursor, depth: int) -> int:
    if depth > _DEEPEST:
        cursor.fail("the expression is nested too deeply")
    match cursor.word:
        case "-" | "+" | "~" | "!" as sign:
            cursor.index += 1
            value = _unary(cursor, depth + 1)
            return _wrapped({"-": -value, "+": value, "~": ~value, "!": int(not value)}[sign])
        case "(":
            cursor.index += 1
            if cursor.take(".s64") or cursor.take(".u64"):
                cursor.expect(")")
                return _unary(cursor, depth + 1)
            value = expression(cursor, depth + 1)
            cursor.expect(")")
            return value
        case "WARP_SZ":
            cursor.index += 1
            return 32
    found = number(cursor.word)
    if not isinstance(found, Integer):
        cursor.unexpected("number")
    cursor.index += 1
    return found.value


def _wrapped(value: int) -> int:
    """`value` in 64 bits. A negative value stays negative."""
    if -(_WORD >> 1) <= value < _WORD:
        return value
    value %= _WORD
    return value - _WORD if value >= _WORD >> 1 else value


def offset(cursor: Cursor) -> int:
    """Step over the `+4`, `-4`, `+-4` or `+4*2` that may stand here."""
    if cursor.take("+") or cursor.word == "-":
        return expression(cursor)
    return 0
