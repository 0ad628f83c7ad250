"""Floor 4. Input pipelines: the next batch is on the device before it is asked for."""

from __future__ import annotations

from cudasync.data.failures import DataError
from cudasync.data.meters import PipelineStats, StageStats
from cudasync.data.pipeline import Pipeline, concat, files, interleave, source, zip  # noqa: A004

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
