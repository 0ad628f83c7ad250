"""Floor 4. The namespace of the array API standard, as arrays tell it.

It stands above the arrays, so it says who it is when it is imported: the door does that before
there is an array.
"""

from __future__ import annotations

from typing import Any

# What of the standard's versions it has.
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")

_provided: list[Any] = []


def provide(module: Any) -> None:
    """`module` has the standard's functions."""
    _provided[:] = [module]


def namespace(api_version: str | None) -> Any:
    """That module; ValueError for a version that it does not have."""
    if api_version is not None and api_version not in VERSIONS:
        raise ValueError(f"version {api_version!r} of the array API: there are {VERSIONS}")
    assert _provided, "cudasync.xp was not imported"
    return _provided[0]
