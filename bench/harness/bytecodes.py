"""How many bytecodes a call runs: what its Python costs, in a number that no machine's speed moves.

The number depends on the release of Python, and on nothing else where the call does the same. From
3.12 on the first traced call of a function goes uncounted: the second is the one to report.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def bytecodes(call: Callable[[], object]) -> int:
    """Call it, and count what this thread runs meanwhile, in all functions that it enters."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Callable:
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
