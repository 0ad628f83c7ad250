"""Floor 5. Training on several devices and in several processes: data, pipeline, tensor parallel.

`cudasync.parallel` is the door; nothing of it is loaded before it is asked for.
"""

from __future__ import annotations

from cudasync.parallel.buckets import Bucket
from cudasync.parallel.compressing import as_float16
from cudasync.parallel.data_parallel import DataParallel
from cudasync.parallel.replicas import gather, replicate, scatter

__all__ = ["Bucket", "DataParallel", "as_float16", "gather", "replicate", "scatter"]
