"""Communicators for tests: ranks on the available devices, or all ranks on the CPU."""

from __future__ import annotations

import cudasync as cs


def communicator(size, *, on_cpu=False):
    count = cs.device_count()
    return cs.distributed.init(
        "local", devices=["cpu"] * size if on_cpu else [r % count for r in range(size)]
    )
