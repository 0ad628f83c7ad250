"""Cellar. The functions that leave the records of vprintf and __assertfail, written in PTX.

They are functions, and not inlined into the caller, because a record takes ten stores and more, and
kernels print in many places.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from cudasync.ptx import parse
from cudasync.ptx.ir import Symbol
from cudasync.softgpu.interface.printf_buffer import (
    CAPACITY,
    HEADER_BYTES,
    INSIDE,
    MOST_STRING_BYTES,
    RECORD_BYTES,
    RECORDERS,
    VARIABLE,
    Kind,
)

if TYPE_CHECKING:
    from cudasync.ptx.ir import Function, Instruction, Operand

_COORDINATES = tuple(f"%{name}.{axis}" for name in ("ctaid", "tid") for axis in "xyz")
_ARGUMENTS = HEADER_BYTES + RECORD_BYTES

_PARAMETERS = {
    Kind.PRINT: ".param .b64 text, .param .b64 first, .param .b32 bytes, .param .b32 strings",
    Kind.ASSERTION: ".param .b64 text, .param .b64 file, .param .b32 line, .param .b64 function",
}


def _each_string(name: str, body: str) -> str:
    """PTX that runs `body` for each string that the host would not see: the argument's place is
    %from, its string is %string. The bits of %left are the strings among the arguments."""
    return f"""
    ld.param.u64 %from, [first];
    isspacep.local %is_there, %from;
    ld.param.u32 %left, [strings];
    @!%is_there mov.u32 %left, 0;
{name}:
    setp.eq.u32 %is_over, %left, 0;
    @%is_over bra {name}_done;
    and.b32 %word, %left, 1;
    setp.eq.u32 %is_over, %word, 0;
    @%is_over bra {name}_next;
    ld.u64 %string, [%from];
    isspacep.local %is_there, %string;
    isspacep.shared %is_shared, %string;
    or.pred %is_there, %is_there, %is_shared;
    @!%is_there bra {name}_next;
    {body}
{name}_next:
    add.u64 %from, %from, 8;
    shr.u32 %left, %left, 1;
    bra {name};
{name}_done:
"""


# PTX that adds the bytes of a string to %size, its terminator included.
_MEASURE = f"""
    mov.u32 %at, 0;
length:
    ld.u8 %word, [%string];
    add.u64 %string, %string, 1;
    add.u64 %size, %size, 1;
    add.u32 %at, %at, 1;
    setp.ne.u32 %is_there, %word, 0;
    setp.lt.and.u32 %is_there, %at, {MOST_STRING_BYTES}, %is_there;
    @%is_there bra length;
"""
# PTX that copies a string to %tail and makes its place the argument; %record is the record's place.
_COPY = f"""
    sub.u64 %head, %tail, %record;
    add.u64 %head, %head, {INSIDE - HEADER_BYTES};
    ld.param.u64 %taken, [first];
    sub.u64 %taken, %from, %taken;
    add.u64 %taken, %taken, %record;
    st.global.u64 [%taken+{_ARGUMENTS}], %head;
    mov.u32 %at, 1;
copy:
    ld.u8 %word, [%string];
    setp.eq.u32 %is_over, %at, {MOST_STRING_BYTES};
    @%is_over mov.u32 %word, 0;
    st.global.u8 [%tail], %word;
    add.u64 %string, %string, 1;
    add.u64 %tail, %tail, 1;
    add.u32 %at, %at, 1;
    setp.ne.u32 %is_there, %word, 0;
    @%is_there bra copy;
"""
# PTX that puts the size of the arguments in bytes into %size.
_SIZE = {
    Kind.PRINT: f"""
    ld.param.u32 %bytes, [bytes];
    cvt.u64.u32 %size, %bytes;
    {_each_string("measure", _MEASURE)}
    add.u64 %size, %size, 7;
    and.b64 %size, %size, -8;
""",
    Kind.ASSERTION: "mov.u64 %size, 24;",
}
# PTX that stores the arguments at %place. Print arguments outside local memory are zero.
_STORES = {
    Kind.PRINT: f"""
    mov.u64 %record, %place;
    ld.param.u64 %from, [first];
    mov.u32 %at, 0;
again:
    setp.ge.u32 %is_over, %at, %bytes;
    @%is_over bra strings_follow;
    mov.u32 %word, 0;
    isspacep.local %is_there, %from;
    @%is_there ld.b32 %word, [%from];
    st.global.b32 [%place+{_ARGUMENTS}], %word;
    add.u64 %from, %from, 4;
    add.u64 %place, %place, 4;
    add.u32 %at, %at, 4;
    bra again;
strings_follow:
    add.u64 %tail, %place, {_ARGUMENTS};
    {_each_string("keep", _COPY)}
    ret;
""",
    Kind.ASSERTION: f"""
    ld.param.u64 %from, [file];
    st.global.u64 [%place+{_ARGUMENTS}], %from;
    ld.param.u32 %word, [line];
    st.global.u32 [%place+{_ARGUMENTS + 8}], %word;
    ld.param.u64 %from, [function];
    st.global.u64 [%place+{_ARGUMENTS + 16}], %from;
    ret;
""",
}


def recorder(kind: Kind, place: Instruction) -> Function:
    """The function that leaves a record of this kind, for a module that calls it at `place`.

    It has a name of `RECORDERS`, and the parameters of `_PARAMETERS`.
    """
    function = _function(kind)
    body = tuple(replace(each, span=place.span, text=place.text) for each in function.body)
    return replace(function, body=body, span=place.span)


@cache
def _function(kind: Kind) -> Function:
    coordinates = "".join(
        f"mov.u32 %word, {name}; st.global.u32 [%place+{HEADER_BYTES + 16 + 4 * number}], %word;\n"
        for number, name in enumerate(_COORDINATES)
    )
    text = f""".version 6.0
.target sm_50
.address_size 64
.extern .global .align 16 .b8 output[];
.func {kind.name}({_PARAMETERS[kind]})
{{
    .reg .pred %is_full, %is_over, %is_there, %is_shared;
    .reg .b32 %bytes, %word, %at, %left;
    .reg .b64 %text, %size, %place, %taken, %most, %head, %from, %string, %record, %tail;

    {_SIZE[kind]}
    add.u64 %size, %size, {RECORD_BYTES};
    mov.u64 %place, output;
    atom.global.add.u64 %taken, [%place], %size;
    mov.u64 %most, {CAPACITY};
    sub.u64 %most, %most, %size;
    setp.gt.u64 %is_full, %taken, %most;
    @%is_full ret;
    add.u64 %place, %place, %taken;
    shl.b64 %head, %size, 8;
    or.b64 %head, %head, {kind.value};
    st.global.u64 [%place+{HEADER_BYTES}], %head;
    ld.param.u64 %text, [text];
    st.global.u64 [%place+{HEADER_BYTES + 8}], %text;
    {coordinates}
    {_STORES[kind]}
}}
"""
    (function,) = parse(text).functions
    body = tuple(
        replace(each, operands=tuple(_renamed(operand) for operand in each.operands))
        for each in function.body
    )
    return replace(function, name=RECORDERS[kind], body=body)


def _renamed(operand: Operand) -> Operand:
    return Symbol(VARIABLE) if operand == Symbol("output") else operand
