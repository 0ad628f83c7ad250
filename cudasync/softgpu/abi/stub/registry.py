"""Cellar. The registry of driver functions: each module with driver calls enters its own here.

The key of a function is its name without suffix, and the version in which CUDA gave it its present
C signature. `cuGetProcAddress` asks in the same way. A function that has always had one
signature is entered without a version. Otherwise each signature is entered, written out.
`function_versions.py` has the versions.

Most programs call few groups of functions. A group of `late_functions.py` is entered by name alone,
and imported before the first call of one of its functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from cudasync.softgpu.abi.stub.function_versions import ANY_VERSION, form, has_narrow
from cudasync.softgpu.abi.stub.late_functions import GROUPS
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_HANDLE,
    INVALID_VALUE,
    UNKNOWN,
    DriverFailure,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    Call: TypeAlias = Callable[..., int | None]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Entry:
    """One function: called with the machine and the C arguments as integers."""

    name: str
    version: int
    signature: str
    call: Call
    before_init: bool
    """True if the function may be called before cuInit, and in a forked child."""
    awaits: tuple[str, ...] = ()
    """The modules to import before the first call: one of them enters the function itself."""


_entries: dict[tuple[str, int], Entry] = {}


def export(
    name: str, version: int = ANY_VERSION, signature: str = "", *, before_init: bool = False
) -> Callable[[F], F]:
    """Enter the decorated function under a driver function's name."""

    def enter(call: F) -> F:
        key = (name, version)
        there = _entries.get(key)
        # An interrupted import is repeated, and enters its functions again.
        if there is not None and there.call is not _not_here:
            assert there.call.__module__ == call.__module__, f"{name} is there twice"
        # Until its whole group is imported, the function is not to be called: see `loaded`.
        awaits = () if there is None else there.awaits
        _entries[key] = Entry(name, version, signature, call, before_init, awaits)
        return call

    return enter


def enter_late() -> None:
    """Enter the functions of all groups whose modules are not imported yet."""
    for modules, functions in GROUPS:
        awaits = tuple(f"cudasync.softgpu.abi.{module}" for module in modules)
        for name, version, signature, before_init in functions:
            _entries.setdefault(
                (name, version), Entry(name, version, signature, _not_here, before_init, awaits)
            )


def _not_here(*_arguments: Any) -> int:
    raise AssertionError("this entry is only a name: `loaded` gives the function")


def loaded(entry: Entry) -> Entry:
    """The entry with its function; imports its group, if that has not happened yet.

    Any number of threads may ask at once: the import system runs a module once, and the others
    wait for it. A group is imported whole, so an object's end is there once the object is: a
    finaliser that runs amid an import never needs a module of the same import.
    """
    if not entry.awaits:
        return entry
    modules = [import_module(module) for module in entry.awaits]
    # The import system waits for imports of other threads, but not for one of this thread.
    if any(getattr(module.__spec__, "_initializing", False) for module in modules):
        raise DriverFailure(
            UNKNOWN, f"{entry.name} was called amid its own import (a signal handler?): call later"
        )
    key = entry.name, entry.version
    found = _entries[key] = replace(_entries[key], awaits=())
    return found


def refuses_values(call: F) -> F:
    """Return INVALID_VALUE for an unknown handle: the call's documentation has no other code."""

    @wraps(call)
    def answer(*arguments: Any) -> Any:
        try:
            return call(*arguments)
        except DriverFailure as failure:
            if failure.code != INVALID_HANDLE:
                raise
            raise DriverFailure(INVALID_VALUE, failure.detail) from failure

    return cast("F", answer)


def find(name: str, version: int) -> Entry | None:
    """The newest form of a function that is not newer than `version`, if it is implemented.

    ANY_VERSION finds the function that was entered without a version.
    """
    if version == ANY_VERSION:
        return _entries.get((name, ANY_VERSION))
    newest = form(name, version)
    if newest is None or has_narrow(name, newest):
        return None
    return _entries.get((name, newest)) or _entries.get((name, ANY_VERSION))


def exact(name: str, version: int) -> Entry | None:
    """The function that was entered with exactly that version, if any."""
    return _entries.get((name, version))


def entries() -> list[Entry]:
    """All entries, in the order of entry."""
    return list(_entries.values())
