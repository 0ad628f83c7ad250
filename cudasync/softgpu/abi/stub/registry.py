"""Cellar. The registry of driver functions: each module with driver calls enters its own here.

The key of a function is its name without suffix, and the version in which CUDA gave it its present
C signature. `cuGetProcAddress` asks in the same way. A function that has always had one
signature is entered without a version. Otherwise each signature is entered, written out.
`function_versions.py` has the versions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from cudasync.softgpu.abi.stub.function_versions import ANY_VERSION, form, has_narrow
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_HANDLE,
    INVALID_VALUE,
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
