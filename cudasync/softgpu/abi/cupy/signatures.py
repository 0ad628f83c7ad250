"""Cellar, abi. C signatures of CuPy's functions, as the names of their capsules give them.

A function that one Cython module takes from another stands in a capsule. The capsule's name is the
C signature: "intptr_t (size_t, intptr_t, int __pyx_skip_dispatch)". The letters are i and u for
32 bits, l and z for 64 (signed, unsigned), f for a float, O for an object, v for a structure that
the caller has room for. A + stands for an optional argument.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from typing import Any, Final

_SKIP: Final = "int __pyx_skip_dispatch"
_OPTIONAL: Final = re.compile(r"struct __pyx_opt_args_\w+ \*__pyx_optional_args")
_OBJECT: Final = re.compile(r"PyObject \*|struct __pyx_obj_\w+ \*")
_LETTERS: Final = {
    "int": "i",
    "bint": "i",
    "cudaMemcpyKind": "i",
    "enum cudaMemcpyKind": "i",
    "unsigned int": "u",
    "intptr_t": "l",
    "Py_ssize_t": "l",
    "size_t": "z",
    "uintmax_t": "z",
    "float": "f",
}
_STRUCTURES: Final = ("cudaChannelFormatDesc", "cudaResourceDesc", "cudaTextureDesc")

_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype = ctypes.c_char_p
_name_of.argtypes = [ctypes.py_object]


@dataclass(frozen=True, slots=True)
class Signature:
    """The letters of a function's result and arguments.

    `optional` is the number of optional arguments: they come last, in a structure.
    """

    result: str
    arguments: str
    optional: int = 0

    @property
    def letters(self) -> str:
        """The letters in one word: "l(zl)", with + for an optional argument."""
        return f"{self.result}({self.arguments}{'+' * self.optional})"


def text_of(capsule: Any) -> str:
    """The C signature of a capsule's function, or the C type of its variable."""
    text: bytes = _name_of(capsule)
    return text.decode()


def parse(text: str) -> Signature | None:
    """The letters of a C signature; None if it contains an unknown type."""
    match = re.fullmatch(r"([^(]+?) ?\((.*)\)", text)
    if match is None:
        return None
    result = _letter(match[1])
    if match[1] in _STRUCTURES:
        result = "v"
    found, optional = "", 0
    for each in match[2].split(", "):
        if _OPTIONAL.fullmatch(each):
            optional = 1
        elif each not in (_SKIP, "void"):
            found += _letter(each) or "?"
    if not result or "?" in found:
        return None
    return Signature(result, found, optional)


def _letter(text: str) -> str:
    return "O" if _OBJECT.fullmatch(text) else _LETTERS.get(text, "")


def skips_dispatch(text: str) -> bool:
    """True if a function takes the extra argument that Cython adds for cpdef functions."""
    return _SKIP in text
