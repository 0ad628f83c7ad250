"""Hostile PTX by number: damaged texts, and typed modules with exchanged parts.

A number gives the same case on every machine. A new file in the repository changes few other cases,
because each number takes the file with the smallest checksum.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

from helpers.repository.checkout import ROOT

from cudasync.errors import PtxError
from cudasync.ptx import ir, parse
from cudasync.ptx.opcodes import OPCODES
from cudasync.ptx.parsing.operand_types import misfit
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.semantics.instruction_validity import _MODIFIERS as MODIFIERS

if TYPE_CHECKING:
    from collections.abc import Callable

_FOLDERS = ("ptx/isa", "ptx/kernels", "tests/softgpu/corpus", "tests/ptx/corpus")
# A long text is reduced to its head and one kernel.
_LONGEST = 12_000

NUMBERS = (
    "0", "1", "-1", "3", "7", "31", "32", "33", "63", "64", "255", "256", "1023", "4095", "65535",
    "65536", "2147483647", "2147483648", "4294967295", "4294967296", "1099511627776",
    "4611686018427387904", "9223372036854775807", "9223372036854775808", "18446744073709551615",
    "18446744073709551616", "99999999999999999999999999", "0x7fffffffffffffff", "0f7F800000",
    "0fFFFFFFFF", "0d7FF8000000000000", "0f00000001", "1.0", "1e999", "-0", "0x", "08",
)  # fmt: skip
WORDS = (
    "{", "}", "(", ")", "[", "]", ";", ",", ":", "!", "@", "|", "+", "-", "=", "<", ">", "%", "_",
    ".reg", ".local", ".shared", ".param", ".global", ".const", ".extern", ".entry", ".func",
    ".align", ".v2", ".v4", ".pred", ".b8", ".u8", ".b16", ".f16", ".bf16", ".u32", ".s32", ".b32",
    ".f32", ".u64", ".s64", ".b64", ".f64", ".f16x2", ".b128", ".visible", ".maxntid", ".reqntid",
    ".branchtargets", ".callprototype", ".loc", ".file", ".section", ".version", ".target", "/*",
    "//", "\"", "\0", "\n", "%tid.x", "%laneid", "%clock64", "WARP_SZ", "exit", "ret", "trap",
    "bar.sync", "barrier.sync", "bra", "brx.idx", "call", "mov.u32", "ld.local.u64", "atom.add.u32",
    "shfl.sync.idx.b32", "vote.sync.all.pred", "cvt.rn.f32.s32", "mma.sync", "nanosleep.u32",
    "activemask.b32", "st.shared.v4.u32", "prmt.b32", "vprintf", "__assertfail", "%p0", "%r0",
)  # fmt: skip


@cache
def sources() -> dict[str, str]:
    """The texts to damage, by file. Texts that print are left out, because a case must not
    print."""
    paths = [path for folder in _FOLDERS for path in (ROOT / folder).glob("*.ptx")]
    texts = {path.name + path.parent.name: path.read_text() for path in paths}
    return {name: text for name, text in texts.items() if "vprintf" not in text}


def _source(number: int) -> str:
    texts = sources()
    return texts[min(texts, key=lambda name: crc32(f"{number} {name}".encode()))]


def _part(text: str, random: Random) -> str:
    """A short text as it is; of a long text the head, its functions, and some kernel."""
    if len(text) <= _LONGEST:
        return text
    head, *kernels = re.split(r"(?m)^(?=\.(?:visible )?\.?entry)", text)
    kernels = [each for each in kernels if len(each) < _LONGEST]
    return head[:_LONGEST] + (random.choice(kernels) if kernels else "")


def _tokens(text: str) -> list[str]:
    return re.findall(r"[.\w$%]+|\s+|[^\w\s]", text)


def _cut(text: str, random: Random) -> str:
    return text[: random.randrange(len(text) + 1)]


def _bytes(text: str, random: Random) -> str:
    letters = list(text)
    for _ in range(random.randint(1, 4)):
        where = random.randrange(len(letters) + 1)
        new = random.choice([chr(random.randrange(256)), random.choice("{}()[];,.:%@!-0_ ")])
        letters[where : where + random.randint(0, 2)] = [new]
    return "".join(letters)


def _words(text: str, random: Random) -> str:
    """Exchange, double, remove or replace tokens, by tokens of this text or of WORDS."""
    tokens = _tokens(text)
    for _ in range(random.randint(1, 3)):
        where, other = random.randrange(len(tokens)), random.randrange(len(tokens))
        match random.randrange(5):
            case 0:
                tokens[where], tokens[other] = tokens[other], tokens[where]
            case 1:
                tokens.insert(where, tokens[other])
            case 2:
                tokens[where] = ""
            case 3:
                tokens[where] = tokens[other]
            case _:
                tokens[where] = random.choice(WORDS)
    return "".join(tokens)


def _replace_one(pattern: str, new: Callable[[Random, str], str]) -> Callable[[str, Random], str]:
    """A mutation that replaces one match of a pattern."""

    def mutate(text: str, random: Random) -> str:
        found = list(re.finditer(pattern, text))
        if not found:
            return text
        place = random.choice(found)
        return text[: place.start()] + new(random, text) + text[place.end() :]

    return mutate


def _like(pattern: str) -> Callable[[Random, str], str]:
    return lambda random, text: random.choice(re.findall(pattern, text))


_NUMBER = r"(?<![\w.%$])-?\d[\w.]*"
_TYPE = r"\.(?:pred|[busf](?:8|16|32|64)|f16x2|bf16)\b"
_REGISTER = r"%\w+"
_OPCODE = r"(?m)(?<=[\s])[a-z]\w*(?:\.[\w:]+)+(?= )"


def _lines(text: str, random: Random) -> str:
    lines = text.split("\n")
    where, other = random.randrange(len(lines)), random.randrange(len(lines))
    match random.randrange(5):
        case 0:
            del lines[where : where + random.randint(1, 4)]
        case 1:
            lines.insert(where, lines[other])
        case 2:
            lines[where], lines[other] = lines[other], lines[where]
        case 3:
            lines[where:where] = lines[other : other + 6]
        case _:
            lines[where:where] = [lines[other]] * random.choice([10, 300])
    return "\n".join(lines)


def _splice(text: str, random: Random) -> str:
    """Continue a text with a part of another one."""
    other = _part(random.choice(list(sources().values())), random)
    return text[: random.randrange(len(text) + 1)] + other[random.randrange(len(other) + 1) :]


_MUTATIONS = [
    _cut, _bytes, _words, _words, _lines, _lines, _splice,
    *[_replace_one(_NUMBER, lambda random, _: random.choice(NUMBERS))] * 2,
    *[_replace_one(_TYPE, lambda random, text: random.choice(_types(text)))] * 2,
    *[_replace_one(_REGISTER, _like(_REGISTER))] * 3,
    *[_replace_one(_OPCODE, _like(_OPCODE))] * 2,
    _replace_one(r"(?<=bra )[\w$]+", _like(r"(?m)^[\w$]+(?=:)|(?<=bra )[\w$]+")),
    _replace_one(r"(?m)^    (?=[a-z@])", lambda random, text: "    @!%p bra done;\n    "),
]  # fmt: skip


def _types(text: str) -> list[str]:
    return [".pred", ".b8", ".u8", ".f16", ".f16x2", ".b128", *re.findall(_TYPE, text)]


def damaged(number: int) -> bytes:
    """The damaged text of this number."""
    random = Random(number)
    text = _part(_source(number), random)
    for _ in range(random.choice([1, 1, 1, 2, 2, 3, 6])):
        text = random.choice(_MUTATIONS)(text, random)
        if not text:
            break
    return text.encode("latin-1", "replace") if random.randrange(10) == 0 else text.encode()


# The typed form.


def exchanged(number: int) -> ir.Module:
    """The module of this number, with changed instructions that the parser would still accept."""
    random = Random(number)
    module = None
    while module is None:
        try:
            module = parse(_part(_source(number), random))
        except PtxError:
            # The chosen kernel needs another part of its file.
            number += 1_000_003
    functions = []
    for function in module.functions:
        if function.body:
            body = list(function.body)
            for _ in range(random.choice([1, 1, 2, 3, 8])):
                where = random.randrange(len(body))
                changed = _changed(body[where], function, random)
                if misfit(changed) is None:
                    body[where] = changed
            function = replace(function, body=tuple(body))
        functions.append(function)
    return replace(module, functions=tuple(functions))


def _changed(old: ir.Instruction, function: ir.Function, random: Random) -> ir.Instruction:
    other = random.choice(function.body)
    match random.randrange(8):
        case 0 if old.operands and old.opcode not in ("bra", "brx", "call"):
            operands = list(old.operands)
            operands[random.randrange(len(operands))] = _operand(function, random)
            return replace(old, operands=tuple(operands))
        case 1 if old.opcode not in ("bra", "brx", "call"):
            operands = list(old.operands)
            random.shuffle(operands)
            return replace(old, operands=tuple(operands))
        case 2 if old.types:
            types = list(old.types)
            types[random.randrange(len(types))] = random.choice(list(ScalarType))
            return replace(old, types=tuple(types))
        case 3:
            known = sorted(MODIFIERS.get(old.opcode, {"sat"}))
            modifiers = [each for each in old.modifiers if random.randrange(3)]
            modifiers.insert(random.randint(0, len(modifiers)), random.choice(known))
            return replace(old, modifiers=tuple(modifiers))
        case 4:
            count = len(old.operands)
            fits = [name for name, (least, most) in OPCODES.items() if least <= count <= most]
            fits = [name for name in fits if name not in ("bra", "brx", "call")]
            if old.opcode in ("bra", "brx", "call"):
                return old
            return replace(old, opcode=random.choice(fits))
        case 5 if old.opcode == "bra" and function.labels:
            return replace(old, operands=(ir.Label(random.choice(list(function.labels))),))
        case 6:
            predicates = [each for each in function.registers.values() if each.type.bits == 1]
            if not predicates:
                return replace(old, guard=None)
            return replace(
                old, guard=ir.Guard(random.choice(predicates), bool(random.randrange(2)))
            )
    return replace(other, span=old.span)


def _operand(function: ir.Function, random: Random) -> ir.Operand:
    found: list[ir.Operand] = [
        operand for each in function.body if each.opcode != "call" for operand in each.operands
    ]
    found = [each for each in found if not isinstance(each, ir.Label)]
    registers = list(function.registers.values())
    constants: list[ir.Operand] = [
        ir.Integer(random.choice([0, 1, -1, 31, 64, 2**31, 2**63, 2**64 - 1])),
        ir.Float(0x7F800000, ScalarType.F32),
        ir.Float(1, ScalarType.F64),
        ir.Sink(),
        ir.Vector(tuple(registers[:2])),
    ]
    return random.choice([*registers, *registers, *found, *constants])
