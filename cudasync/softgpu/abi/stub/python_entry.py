"""Cellar. Where a driver call enters Python: machine code between the stub and the callbacks.

It does what ctypes does for a callback, in half the time. It also saves and restores the exception
that is set in the calling thread. Objects can be freed while an exception is set (a failing
expression's temporaries), and their destructors call the driver. To call Python with an exception
set is a crash, or loses the exception.

`CODE` is `SOURCE` assembled, so that nobody needs an assembler. A test assembles it again. It takes
the number of the function in r11, and holds the GIL from its first call to its last. Machines other
than x86-64 use ctypes' callbacks.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

INTERFACE: Final = (
    "PyGILState_Ensure",
    "PyErr_Fetch",
    "PyErr_Restore",
    "PyGILState_Release",
    "PyLong_FromUnsignedLongLong",
    "PyLong_FromLongLong",
    "PyObject_Vectorcall",
    "PyLong_AsLong",
    "Py_DecRef",
    "PyErr_WriteUnraisable",
)
"""The functions that the code calls: a table of addresses, before the functions' records."""

RECORDS_OFFSET: Final = 0x80
RECORD_BYTES: Final = 16
MOST_ARGUMENTS: Final = 22
PLACEHOLDER: Final = 0x11223344
"""Stands in the code for the distance to the table."""

_KINDS: Final[dict[Any, int]] = {
    ctypes.c_uint64: 1,
    ctypes.c_int: 2,
    ctypes.c_uint: 3,
    ctypes.c_ushort: 4,
    ctypes.c_ubyte: 5,
}

SOURCE: Final = """
    endbr64
    push %rbp
    mov %rsp, %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    sub $0x118, %rsp
    # 0x00 arguments in registers, 0x30 exception, 0x48 state, 0x50 result, 0x60 objects
    mov %rdi, 0x00(%rsp)
    mov %rsi, 0x08(%rsp)
    mov %rdx, 0x10(%rsp)
    mov %rcx, 0x18(%rsp)
    mov %r8, 0x20(%rsp)
    mov %r9, 0x28(%rsp)
    lea 0x11223344(%rip), %r15  # the interface: see `INTERFACE`
    shl $4, %r11
    lea 0x80(%r15,%r11), %rbx  # the function's record: what to call, and the kinds of its arguments
    call *0x00(%r15)
    mov %eax, 0x48(%rsp)
    lea 0x30(%rsp), %rdi
    lea 0x38(%rsp), %rsi
    lea 0x40(%rsp), %rdx
    call *0x08(%r15)
    mov 0x08(%rbx), %r13
    xor %r12d, %r12d
next:
    movzbl (%r13,%r12), %eax
    test %eax, %eax
    jz call
    cmp $6, %r12
    jae on_stack
    mov (%rsp,%r12,8), %rdi
    jmp loaded
on_stack:
    mov -0x20(%rbp,%r12,8), %rdi  # the seventh is above the return address
loaded:
    cmp $1, %eax
    je unsigned
    cmp $2, %eax
    je signed
    cmp $3, %eax
    je word
    cmp $4, %eax
    je half
    movzbl %dil, %edi
    jmp unsigned
half:
    movzwl %di, %edi
    jmp unsigned
word:
    mov %edi, %edi
unsigned:
    call *0x20(%r15)
    jmp made
signed:
    movslq %edi, %rdi
    call *0x28(%r15)
made:
    test %rax, %rax
    jz failed
    mov %rax, 0x60(%rsp,%r12,8)
    inc %r12
    jmp next
call:
    mov (%rbx), %rdi
    lea 0x60(%rsp), %rsi
    mov %r12, %rdx
    bts $63, %rdx  # there is a word before the first object that may be written over
    xor %ecx, %ecx
    call *0x30(%r15)
    test %rax, %rax
    jz failed
    mov %rax, %r14
    mov %rax, %rdi
    call *0x38(%r15)
    mov %eax, 0x50(%rsp)
    mov %r14, %rdi
    call *0x40(%r15)
    jmp release
failed:
    movl $999, 0x50(%rsp)
    mov (%rbx), %rdi
    call *0x48(%r15)
release:
    test %r12, %r12
    jz restore
    dec %r12
    mov 0x60(%rsp,%r12,8), %rdi
    call *0x40(%r15)
    jmp release
restore:
    mov 0x30(%rsp), %rdi
    test %rdi, %rdi
    jz leave
    mov 0x38(%rsp), %rsi
    mov 0x40(%rsp), %rdx
    call *0x10(%r15)
leave:
    mov 0x48(%rsp), %edi
    call *0x18(%r15)
    mov 0x50(%rsp), %eax
    lea -0x28(%rbp), %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
"""

CODE: Final = bytes.fromhex(
    "f30f1efa554889e55341544155415641574881ec1801000048893c244889742408488954241048894c24184c"
    "894424204c894c24284c8d3d4433221149c1e3044b8d9c1f8000000041ff1789442448488d7c2430488d7424"
    "38488d54244041ff57084c8b6b084531e4430fb644250085c0744e4983fc0673064a8b3ce4eb054a8b7ce5e0"
    "83f801741c83f802741d83f803741083f8047406400fb6ffeb070fb7ffeb0289ff41ff5720eb074863ff41ff"
    "57284885c0743c4a8944e46049ffc4eba8488b3b488d7424604c89e2480fbaea3f31c941ff57304885c07417"
    "4989c64889c741ff5738894424504c89f741ff5740eb0fc7442450e7030000488b3b41ff57484d85e4740e49"
    "ffcc4a8b7ce46041ff5740ebed488b7c24304885ff740e488b742438488b54244041ff57108b7c244841ff57"
    "188b442450488d65d8415f415e415d415c5b5dc3"
)


def placed(place: int, table: int) -> bytes:
    """The code placed at one address in the library, for a table at another address."""
    before, found, after = CODE.partition(PLACEHOLDER.to_bytes(4, "little"))
    distance = table - (place + len(before) + len(found))
    return before + distance.to_bytes(4, "little", signed=True) + after


@cache
def kinds_of(types: tuple[Any, ...]) -> bytes | None:
    """The kinds of a function's arguments, with an end mark; None if ctypes must call it."""
    kinds = [_KINDS.get(type_) for type_ in types]
    if None in kinds or len(kinds) > MOST_ARGUMENTS:
        return None
    return bytes([*(kind for kind in kinds if kind is not None), 0])


def write_interface(table: int) -> None:
    """Fill the table with the addresses of this process."""
    for index, name in enumerate(INTERFACE):
        address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
        ctypes.c_void_p.from_address(table + 8 * index).value = address


def write_record(table: int, index: int, function: Callable[..., int], kinds: bytes) -> object:
    """Write the record of function `index`; keep the returned object as long as the record."""
    text = _buffer(kinds)
    record = _Record.from_address(table + RECORDS_OFFSET + RECORD_BYTES * index)
    record[:] = [id(function), ctypes.addressof(text)]
    return function, text


_Record = ctypes.c_uint64 * 2


@cache
def _buffer(kinds: bytes) -> ctypes.Array[ctypes.c_char]:
    """The kinds as C reads them: functions with the same arguments share one."""
    return ctypes.create_string_buffer(kinds)
