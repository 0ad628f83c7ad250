"""Cellar. The virtual clock: the cost of each command, in microseconds.

The numbers only need to be constant and plausible. Elapsed times are equal from run to run, so a
test may rely on their order. A stream's time advances as its commands complete. A command starts
at the latest of three times: its stream's time, the times of its dependencies, and the time that
the host had seen pass when the command was enqueued.
"""

from __future__ import annotations

from typing import Final

COPY_LATENCY_US: Final = 1.0
COPY_BYTES_PER_US: Final = 10_000.0
KERNEL_LATENCY_US: Final = 2.0
KERNEL_THREADS_PER_US: Final = 1_000.0
HOST_FUNCTION_US: Final = 5.0


def copy_us(size_bytes: int) -> float:
    """The cost of a copy or a memset: 10 GB/s after one microsecond."""
    return COPY_LATENCY_US + size_bytes / COPY_BYTES_PER_US


def kernel_us(threads: int) -> float:
    """The cost of a kernel: a nanosecond for each thread after two microseconds."""
    return KERNEL_LATENCY_US + threads / KERNEL_THREADS_PER_US
