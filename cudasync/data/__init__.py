"""Floor 4. Input pipelines: the next batch is on the device before the loop asks for it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.data.failures import DataError
    from cudasync.data.meters import PipelineStats, StageStats
    from cudasync.data.pipeline import Pipeline
    from cudasync.data.sources import concat, files, interleave, source, zip  # noqa: A004

__all__ = [
    "DataError",
    "Pipeline",
    "PipelineStats",
    "StageStats",
    "concat",
    "files",
    "interleave",
    "source",
    "zip",
]

_FILES = ("sources", "pipeline", "meters", "failures")

if not TYPE_CHECKING:  # With this function, a type checker would accept any name.

    def __getattr__(name: str) -> object:
        """Import all names at the first use: worker processes import this room, and use no name."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = [vars(importlib.import_module(f"{__name__}.{each}")) for each in _FILES]
        for public in __all__:
            globals()[public] = next(each[public] for each in found if public in each)
        return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)
