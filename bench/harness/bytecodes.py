"""The number of bytecodes that a call runs: a cost of Python that no machine's speed changes.

The number depends only on the release of Python, if the call does the same. From 3.12 on the first
traced call of a function is not counted, so the second one is reported.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def bytecodes(call: Callable[[], object]) -> int:
    """Call the function, and count the bytecodes of this thread in all functions that it enters."""
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
