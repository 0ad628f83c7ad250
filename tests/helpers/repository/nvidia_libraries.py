"""The NVIDIA libraries that a test can use: those of wheels that the tests do not require."""

from __future__ import annotations

import sys
from functools import cache

from helpers.repository.subprocesses import start

DEADLINE_S = 120


@cache
def has_library(name: str) -> bool:
    """The library is loaded in another process, because here it would stay loaded before the
    software GPU is installed."""
    program = f"from cuda import pathfinder; pathfinder.load_nvidia_dynamic_lib({name!r})"
    code, _ = start([sys.executable, "-c", program], DEADLINE_S)
    return code == 0
