"""Cellar. Which driver functions there are: each `calls_*` module enters its own here.

A function is known by its name without suffix and the version in which CUDA gave it its present
C signature, as `cuGetProcAddress` asks for it. Where one signature has always served, the
version is left out; where there are several, each is entered with its own signature written out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing import TypeAlias

    Call: TypeAlias = Callable[..., int | None]

F = TypeVar("F", bound=Callable[..., Any])

ANY_VERSION = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One function: called with the machine and the C arguments as integers."""

    name: str
    version: int
    signature: str
    call: Call
    before_init: bool
    """True for what may be called before cuInit, and in a forked child."""


_entries: dict[tuple[str, int], Entry] = {}


def export(
    name: str, version: int = ANY_VERSION, signature: str = "", *, before_init: bool = False
) -> Callable[[F], F]:
    """Enter the decorated function under a driver function's name."""

    def enter(call: F) -> F:
        key = (name, version)
        assert key not in _entries, f"{name} is there twice"
        _entries[key] = Entry(name, version, signature, call, before_init)
        return call

    return enter


def find(name: str, version: int) -> Entry | None:
    """The function for a name as asked for by a client of that version, if there is one."""
    return _entries.get((name, version)) or _entries.get((name, ANY_VERSION))


def entries() -> list[Entry]:
    """All of them, in the order of entry."""
    return list(_entries.values())
