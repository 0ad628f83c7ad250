"""Cellar. State shared by compiled code and the scheduler: one record per thread, one per block.

Both are plain C structures, so the offsets in the generated code and the fields read here cannot
disagree. The stack of a thread, with its registers, follows its record.
"""

from __future__ import annotations

import ctypes

from cudasync.ptx.types import StateSpace

# Results of a thread function besides the number (1 and up) of the stop that it reached.
DONE = -1
FAULTED = -2
# Values of fault_kind, and the spaces that fault_space counts.
ILLEGAL_ADDRESS, MISALIGNED, TIMEOUT, TRAP, ASSERT = 1, 2, 3, 4, 5
SPACES = tuple(StateSpace)

# The registers of three fragments, for a matrix product.
MAILBOX_WORDS = 24


class BlockState(ctypes.Structure):
    """State that every thread of a block can see, and the fault of the first thread that failed."""

    _fields_ = (
        ("shared", ctypes.c_uint64),
        ("shared_bytes", ctypes.c_uint64),
        ("local", ctypes.c_uint64),
        ("local_bytes", ctypes.c_uint64),
        ("parameters", ctypes.c_uint64),
        ("parameter_bytes", ctypes.c_uint64),
        ("symbols", ctypes.c_uint64),
        ("allocations", ctypes.c_uint64),
        ("allocation_count", ctypes.c_uint64),
        ("recording", ctypes.c_uint64),
        ("recording_count", ctypes.c_uint64),
        ("budget", ctypes.c_int64),
        ("workspace", ctypes.c_uint64),
        ("block_size", ctypes.c_uint32 * 3),
        ("block_index", ctypes.c_uint32 * 3),
        ("grid_size", ctypes.c_uint32 * 3),
        ("dynamic_shared_bytes", ctypes.c_uint32),
        ("fault_kind", ctypes.c_uint32),
        ("fault_line", ctypes.c_uint32),
        ("fault_address", ctypes.c_uint64),
        ("fault_bytes", ctypes.c_uint32),
        ("fault_is_write", ctypes.c_uint32),
        ("fault_space", ctypes.c_uint32),
    )


class ThreadState(ctypes.Structure):
    """A thread's position and coordinates, and its mailbox for stops."""

    _fields_ = (
        ("position", ctypes.c_uint32),
        ("linear", ctypes.c_uint32),
        ("index", ctypes.c_uint32 * 3),
        ("carry", ctypes.c_uint32),
        ("block", ctypes.c_uint64),
        # The record of the running function (see activation_record.py), and the stack's end.
        ("activation", ctypes.c_uint64),
        ("stack_end", ctypes.c_uint64),
        ("local", ctypes.c_uint64),
        ("mailbox", ctypes.c_uint64 * MAILBOX_WORDS),
    )


# The offset of a thread's stack from its record.
STACK_OFFSET = -(-ctypes.sizeof(ThreadState) // 16) * 16
