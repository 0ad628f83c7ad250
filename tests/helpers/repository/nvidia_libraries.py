"""Which of NVIDIA's libraries a test can have: those of wheels that tests do not ask for."""

from __future__ import annotations

import sys
from functools import cache

from helpers.repository.subprocesses import start

DEADLINE_S = 120


@cache
def has_library(name: str) -> bool:
    """Found in another process: here it would stay, before the software GPU is in place."""
    program = f"from cuda import pathfinder; pathfinder.load_nvidia_dynamic_lib({name!r})"
    code, _ = start([sys.executable, "-c", program], DEADLINE_S)
    return code == 0
