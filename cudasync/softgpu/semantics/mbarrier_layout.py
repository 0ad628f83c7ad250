"""Cellar. The layout of the 64 bits of an mbarrier.

In the PTX ISA the object is opaque ("Contents of the mbarrier object"), so the layout is ours. Both
lowerings share it, so that a program which passes states around sees one implementation. From the
low bits on:

    20 bits   arrivals that each phase expects
    20 bits   arrivals that the current phase still waits for
    22 bits   bytes that the current phase still waits for, signed
     1 bit    unused
     1 bit    parity of the current phase: phases count from 0

A state is the object's value before the arrival that returns the state.
"""

from __future__ import annotations

COUNT_BITS = 20
COUNT_MASK = (1 << COUNT_BITS) - 1
PENDING_SHIFT = 20
BYTES_SHIFT = 40
BYTES_MASK = (1 << 22) - 1
PARITY_SHIFT = 63

OPERATIONS = frozenset(
    {
        "init", "inval", "arrive", "arrive_drop", "test_wait", "try_wait", "pending_count",
        "expect_tx", "complete_tx",
    }
)  # fmt: skip


def operation_of(modifiers: tuple[str, ...]) -> str:
    """The operation of an mbarrier instruction: its first one among the modifiers, or ""."""
    return next((each for each in modifiers if each in OPERATIONS), "")
