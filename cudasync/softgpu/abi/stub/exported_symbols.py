"""Cellar. The exports of the library: every symbol of a driver, implemented or refused.

A library that is linked with libcuda loads only if each symbol that it names exists, whether or not
it is ever called. So the exports are the symbols of `function_versions.py`, for all functions that
are implemented or that the bindings know. Symbols whose forms are one function here share its slot.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

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


class Exports(NamedTuple):
    """The functions that have slots from the beginning, and the slot of each symbol."""

    keys: tuple[Key, ...]
    slots: dict[str, int]
    """By symbol: the number of a slot."""


def key_of(name: str, version: int, *, per_thread: bool) -> Key:
    """The key that tells functions apart: forms that are one function here have one key."""
    entry = registry.find(name, version)
    if entry is None:
        return name, form(name, version) or ANY_VERSION, False
    return name, entry.version, per_thread and has_per_thread(name)


def exports() -> Exports:
    """All exports, for the functions entered so far and the installed bindings."""
    known = {_SUFFIX.sub("", name) for name in cydriver.__pyx_capi__ if name.startswith("cu")}
    names = sorted({entry.name for entry in registry.entries()} | known | {*FORMS})
    keys: dict[Key, int] = {}
    slots: dict[str, int] = {}
    for name in names:
        for symbol, version, per_thread in symbols(name):
            # The name without a suffix means today's function. A driver would give the one for
            # 32-bit addresses.
            meant = FORMS[name][1] if symbol == name and has_narrow(name, version) else version
            key = key_of(name, meant, per_thread=per_thread)
            slots[symbol] = keys.setdefault(key, len(keys))
    return Exports(tuple(keys), slots)
