"""Floor 5. Training on several devices and in several processes: data, pipeline, tensor parallel.

`cudasync.parallel` is the public name of this package, which is loaded at its first use.
"""

from __future__ import annotations

from cudasync.parallel.buckets import Bucket
from cudasync.parallel.compression_hooks import as_float16
from cudasync.parallel.data_parallel import DataParallel
from cudasync.parallel.pipeline import Pipeline, Stage
from cudasync.parallel.replicas import gather, replicate, scatter
from cudasync.parallel.tensor import ColumnParallel, RowParallel

__all__ = [
    "Bucket",
    "ColumnParallel",
    "DataParallel",
    "Pipeline",
    "RowParallel",
    "Stage",
    "as_float16",
    "gather",
    "replicate",
    "scatter",
]


def __dir__() -> list[str]:
    return sorted(__all__)
