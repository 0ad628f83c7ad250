"""Cellar. What the library exports: every symbol that a driver has, here or refused.

A library that is linked with libcuda is loaded only if each symbol that it names is there, whether
or not it is ever called. So symbols are those of `function_versions.py`, of all functions that are
here or that the bindings know. Symbols whose forms are one function here share its slot.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cuda.bindings import cydriver

from cudasync.softgpu.abi.stub import registry
from cudasync.softgpu.abi.stub.function_versions import (
    ANY_VERSION,
    FORMS,
    form,
    has_narrow,
    has_per_thread,
    symbols,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    Key: TypeAlias = tuple[str, int, bool]
    """A function's name, the version of its form, and whether it is the per-thread one."""


_SUFFIX: Final = re.compile(r"_v\d$")


@dataclass(frozen=True, slots=True)
class Exports:
    """The functions that have slots from the beginning, and the symbol of each."""

    keys: tuple[Key, ...]
    slots: dict[str, int]
    """By symbol: the number of a slot."""


def key_of(name: str, version: int, *, per_thread: bool) -> Key:
    """What tells functions apart: forms that are one function here have one key."""
    entry = registry.find(name, version)
    if entry is None:
        return name, form(name, version) or ANY_VERSION, False
    return name, entry.version, per_thread and has_per_thread(name)


def exports() -> Exports:
    """All of them, for the functions that have been entered and the bindings that are installed."""
    known = {_SUFFIX.sub("", name) for name in cydriver.__pyx_capi__ if name.startswith("cu")}
    names = sorted({entry.name for entry in registry.entries()} | known | {*FORMS})
    keys: dict[Key, int] = {}
    slots: dict[str, int] = {}
    for name in names:
        for symbol, version, per_thread in symbols(name):
            # Who looks up the name alone means the function as it is today, and not the one for
            # addresses of 32 bits that a driver would give.
            meant = FORMS[name][1] if symbol == name and has_narrow(name, version) else version
            key = key_of(name, meant, per_thread=per_thread)
            slots[symbol] = keys.setdefault(key, len(keys))
    return Exports(tuple(keys), slots)
