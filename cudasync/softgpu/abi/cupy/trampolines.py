"""Cellar, abi. C functions that call Python functions, as LLVM's text.

A callback of ctypes cannot raise: it prints an exception and returns something. These functions
return the value that Cython takes for "an exception is set": NULL for an object, and for a number
the one that the function's `except` clause names. They are called with the GIL.

The text depends on the signatures alone, so its machine code can be kept. The array `functions`
names the Python functions to call; each process fills it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.abi.cupy.signatures import Signature

FUNCTIONS: Final = "cudasync_python_functions"
"""The array of addresses of Python functions."""

_TYPES: Final = {"i": "i32", "u": "i32", "l": "i64", "z": "i64", "f": "float", "O": "ptr"}
_OBJECT_OF: Final = {
    "i": "PyLong_FromLongLong",
    "u": "PyLong_FromUnsignedLongLong",
    "l": "PyLong_FromLongLong",
    "z": "PyLong_FromUnsignedLongLong",
}
_DECLARATIONS: Final = """
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyLong_FromUnsignedLongLong(i64)
declare i64 @PyLong_AsUnsignedLongLongMask(ptr)
declare double @PyFloat_AsDouble(ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
"""


def name_of(index: int) -> str:
    """The symbol of a function."""
    return f"cudasync_trampoline_{index}"


def text_of(functions: Sequence[tuple[Signature, int, bool]]) -> str:
    """A module with a C function for each (signature, value on an exception, skips dispatch)."""
    parts = [
        _function(index, len(functions), signature, failed, skips)
        for index, (signature, failed, skips) in enumerate(functions)
    ]
    array = f"@{FUNCTIONS} = global [{len(functions)} x ptr] zeroinitializer\n"
    return array + "\n".join(parts) + _DECLARATIONS


def _function(index: int, count: int, signature: Signature, failed: int, skips: bool) -> str:
    letters = ["l"] if signature.result == "v" else []
    letters += signature.arguments
    parameters = [f"{_TYPES[letter]} %a{n}" for n, letter in enumerate(signature.arguments)]
    result = _TYPES.get(signature.result, "void")
    if signature.result == "v":
        parameters.insert(0, "ptr sret(i8) %target")
    if skips:
        parameters.append("i32 %skip")
    if signature.optional:
        parameters.append("ptr %optional")
        letters.append("O")
    total = len(letters)
    lines = [
        f"define {result} @{name_of(index)}({', '.join(parameters)}) {{",
        f"  %place = getelementptr [{count} x ptr], ptr @{FUNCTIONS}, i64 0, i64 {index}",
        "  %function = load ptr, ptr %place",
        f"  %slots = alloca [{total + 1} x ptr]",
    ]
    for n in range(total):
        lines.append(f"  %s{n} = getelementptr [{total + 1} x ptr], ptr %slots, i64 0, i64 {n}")
        lines.append(f"  store ptr null, ptr %s{n}")
    shift = 1 if signature.result == "v" else 0
    for n, letter in enumerate(letters):
        lines += _made(n, letter, _source(n - shift, signature, bool(shift and not n)))
        lines += [
            f"  store ptr %o{n}, ptr %s{n}",
            f"  %bad{n} = icmp eq ptr %o{n}, null",
            f"  br i1 %bad{n}, label %end, label %next{n}",
            f"next{n}:",
        ]
    before = [f"%{0 if not n else f'next{n - 1}'}" for n in range(total)]
    lines += [
        f"  %answer = call ptr @PyObject_Vectorcall(ptr %function, ptr %slots, i64 {total}, "
        "ptr null)",
        "  br label %end",
        "end:",
    ]
    edges = "".join(f"[ null, {place} ], " for place in before)
    last = f"%next{total - 1}" if total else "%0"
    lines.append(f"  %result = phi ptr {edges}[ %answer, {last} ]")
    for n in range(total):
        lines += [f"  %old{n} = load ptr, ptr %s{n}", f"  call void @Py_DecRef(ptr %old{n})"]
    return "\n".join(lines + _returned(signature.result, failed)) + "\n}\n"


def _source(n: int, signature: Signature, is_target: bool) -> str:
    if is_target:
        return "%target"
    return f"%a{n}" if n < len(signature.arguments) else "%optional"


def _made(n: int, letter: str, source: str) -> list[str]:
    """The object of an argument; for the structure of optional arguments, its address."""
    if source in ("%target", "%optional"):
        return [
            f"  %w{n} = ptrtoint ptr {source} to i64",
            f"  %o{n} = call ptr @PyLong_FromUnsignedLongLong(i64 %w{n})",
        ]
    if letter == "O":
        return [
            f"  call void @Py_IncRef(ptr {source})",
            f"  %o{n} = getelementptr i8, ptr {source}, i64 0",
        ]
    if _TYPES[letter] == "i64":
        return [f"  %o{n} = call ptr @{_OBJECT_OF[letter]}(i64 {source})"]
    widened = "sext" if letter == "i" else "zext"
    return [
        f"  %w{n} = {widened} i32 {source} to i64",
        f"  %o{n} = call ptr @{_OBJECT_OF[letter]}(i64 %w{n})",
    ]


def _returned(letter: str, failed: int) -> list[str]:
    """The C function's return value, from the Python function's answer."""
    if letter == "O":
        return ["  ret ptr %result"]
    if letter == "v":
        return ["  call void @Py_DecRef(ptr %result)", "  ret void"]
    type_ = _TYPES[letter]
    nothing = f"{failed}.0" if letter == "f" else str(failed)
    lines = [
        "  %raised = icmp eq ptr %result, null",
        "  br i1 %raised, label %failed, label %good",
        "failed:",
        f"  ret {type_} {nothing}",
        "good:",
    ]
    if letter == "f":
        lines += [
            "  %double = call double @PyFloat_AsDouble(ptr %result)",
            "  %value = fptrunc double %double to float",
        ]
    else:
        lines.append("  %word = call i64 @PyLong_AsUnsignedLongLongMask(ptr %result)")
        if type_ == "i32":
            lines.append("  %value = trunc i64 %word to i32")
    value = "%word" if type_ == "i64" else "%value"
    return [*lines, "  call void @Py_DecRef(ptr %result)", f"  ret {type_} {value}"]
