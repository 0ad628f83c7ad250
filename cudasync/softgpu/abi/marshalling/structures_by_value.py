"""Cellar, abi. Structures by value: where the calling convention of C functions puts them."""

from __future__ import annotations

import ctypes
import platform
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from cudasync.softgpu.abi.marshalling.pointers import structure_at
from cudasync.softgpu.abi.marshalling.signature_letters import signature

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.core.machine import Machine

_REGISTERS: Final = 6


_ON_STACK: Final = platform.machine() in ("x86_64", "AMD64")


def by_value(kinds: str, *structures: type[Any]) -> tuple[str, Callable[[Callable[..., Any]], Any]]:
    """The C arguments of a function that takes large structures by value, and how to call it.

    The decorated function takes the structures first, then the rest in the order of `kinds`.
    Structures above 16 bytes lie on the stack behind the register arguments (x86-64), or are passed
    by address (AArch64). `kinds` has an S in the place of each.
    """
    plain = kinds.replace("S", "")
    sizes = [ctypes.sizeof(each) // 8 for each in structures]
    if _ON_STACK:
        words = plain + "z" * (_REGISTERS - len(plain)) + "z" * sum(sizes)
    else:
        words = kinds.replace("S", "p")

    def decorate(call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def on_stack(machine: Machine, *arguments: int) -> Any:
            found, at = [], _REGISTERS
            for structure, size in zip(structures, sizes, strict=True):
                found.append(structure(*arguments[at : at + size]))
                at += size
            return call(machine, *found, *arguments[: len(plain)])

        @wraps(call)
        def by_address(machine: Machine, *arguments: int) -> Any:
            found = iter(structures)
            values = [
                structure_at(next(found), value) if kind == "S" else value
                for kind, value in zip(kinds, arguments, strict=True)
            ]
            first = [value for kind, value in zip(kinds, values, strict=True) if kind == "S"]
            rest = [value for kind, value in zip(kinds, values, strict=True) if kind != "S"]
            return call(machine, *first, *rest)

        return on_stack if _ON_STACK else by_address

    return signature(words), decorate
