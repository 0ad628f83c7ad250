"""Floor 5. Hooks for buckets: the reduction with fewer bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cudasync import xp
from cudasync.array import copy
from cudasync.distributed.work import Work, work_of

if TYPE_CHECKING:
    from cudasync.parallel.buckets import Bucket


def as_float16(bucket: Bucket) -> Work:
    """Reduce a bucket that travels as float16: half the bytes of float32.

    Each rank sums one part of all ranks' numbers, in float32, and sends the sum to all. So each
    number is rounded twice, by 2**-11 of itself at most, for any number of ranks. Numbers above
    65504 become infinite. All ranks get the same bits. TypeError for any dtype but floats.
    """
    comm, dtype = bucket.comm, bucket.arrays[0].dtype
    if dtype.kind != "f":
        raise TypeError(f"float16 compresses floats, but bucket {bucket.index} is {dtype}")
    part = -(-bucket.size // comm.size)
    sent = comm.each(
        lambda rank, device: xp.zeros((comm.size * part,), dtype=np.float16, device=device)
    )
    for row, x in zip(sent, bucket.arrays, strict=True):
        row[: bucket.size] = xp.astype(x, np.float16)
    comm.all_to_all(sent)
    own = []
    for row in sent:
        rows = xp.astype(xp.reshape(row, (comm.size, part)), np.float32)
        total = xp.sum(rows, axis=0) / (comm.size if bucket.op == "mean" else 1)
        own.append(xp.astype(total, np.float16))
    comm.all_gather(own, sent)
    for row, x in zip(sent, bucket.arrays, strict=True):
        copy(x, xp.astype(row[: bucket.size], dtype), name="all_reduce as float16")
    return work_of("all_reduce as float16", bucket.arrays)
