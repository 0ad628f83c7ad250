"""Floor 4. The namespace of the array API standard that `x.__array_namespace__()` returns.

The namespace stands above the arrays, so it registers itself when it is imported. The package
imports it before there is an array.
"""

from __future__ import annotations

from typing import Any

# The versions of the standard that the namespace supports.
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")

_provided: list[Any] = []


def provide(module: Any) -> None:
    """Register `module`, which has the standard's functions."""
    _provided[:] = [module]


def namespace(api_version: str | None) -> Any:
    """The registered module; ValueError for a version that it does not support."""
    if api_version is not None and api_version not in VERSIONS:
        raise ValueError(
            f"version {api_version!r} of the array API is unknown: choose from {VERSIONS}"
        )
    assert _provided, "cudasync.xp was not imported"
    return _provided[0]
