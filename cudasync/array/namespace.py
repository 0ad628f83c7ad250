"""Floor 4. The namespace of the array API standard that `x.__array_namespace__()` returns.

The namespace stands above the arrays. So the package says how to import it before there is an
array, and it is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# The versions of the standard that the namespace supports.
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")

_provided: list[Callable[[], Any]] = []


def provide(load: Callable[[], Any]) -> None:
    """Register the function that returns the module with the standard's functions."""
    _provided[:] = [load]


def namespace(api_version: str | None) -> Any:
    """The registered module; ValueError for a version that it does not support."""
    if api_version is not None and api_version not in VERSIONS:
        raise ValueError(
            f"version {api_version!r} of the array API is unknown: choose from {VERSIONS}"
        )
    assert _provided, "nobody said where the namespace is"
    return _provided[0]()
