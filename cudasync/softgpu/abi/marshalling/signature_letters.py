"""Cellar, abi. C signatures of the runtime API as letters, one for each argument.

p is a pointer or handle, z a size_t, i an int or enum, u an unsigned int, l 64 bits, S a structure
by value. Two signatures with the same letters are called alike.
"""

from __future__ import annotations

from typing import Final

_WORDS: Final = {
    "p": "void *",
    "z": "size_t",
    "i": "int",
    "u": "unsigned int",
    "l": "unsigned long long",
}


def signature(kinds: str) -> str:
    """The C arguments that the letters stand for."""
    return ", ".join(_WORDS[kind] for kind in kinds) or "void"


_LETTERS: Final = {
    "size_t": "z",
    "int": "i",
    "unsigned int": "u",
    "unsigned PY_LONG_LONG": "l",
    # Two ints, passed in one 64-bit register.
    "struct cudaMemLocation": "l",
}


def kinds_of(c_signature: str) -> str:
    """The letters of "cudaError_t (A, B *)"; S for a structure by value."""
    arguments = c_signature.partition("(")[2].rpartition(")")[0].strip()
    if arguments in ("", "void"):
        return ""
    return "".join(_letter(each.strip()) for each in arguments.split(","))


def _letter(text: str) -> str:
    if text.endswith("*"):
        return "p"
    found = _LETTERS.get(text)
    if found is not None:
        return found
    if text.startswith("enum ") or text.endswith("AttrID"):
        return "i"
    return "S" if text.startswith("struct ") or text.endswith("Handle_t") else "p"
