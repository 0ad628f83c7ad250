"""Cellar. The virtual clock: what each command costs, in microseconds.

The numbers only need to be steady and plausible: elapsed times are equal from run to run, so a
test may rely on their order. A stream's time advances as its commands complete; a command starts
at the latest of its stream's time, the times of everything it waited for, and the time that the
host had seen pass when it was enqueued.
"""

from __future__ import annotations

from typing import Final

COPY_LATENCY_US: Final = 1.0
COPY_BYTES_PER_US: Final = 10_000.0
KERNEL_LATENCY_US: Final = 2.0
KERNEL_THREADS_PER_US: Final = 1_000.0
HOST_FUNCTION_US: Final = 5.0


def copy_us(size_bytes: int) -> float:
    """A copy or a memset: 10 GB/s after a microsecond."""
    return COPY_LATENCY_US + size_bytes / COPY_BYTES_PER_US


def kernel_us(threads: int) -> float:
    """A kernel: a nanosecond for each thread after two microseconds."""
    return KERNEL_LATENCY_US + threads / KERNEL_THREADS_PER_US
