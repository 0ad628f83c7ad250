"""Cellar. Where kernels leave what they print, and in what form: known to who writes and who reads.

A module that calls vprintf or __assertfail has one variable more, which no text can name. Its first
word counts the bytes of records taken; records follow, in the order in which threads took them:

    u64 size in bytes << 8 | kind    u64 format or message
    u32 block x, y, z                u32 thread x, y, z
    then the arguments as the kernel laid them out, or file, line and function of an assertion

A record that does not fit is lost, and so are all after it, until the host has read the variable.
"""

from __future__ import annotations

from enum import IntEnum, unique

VARIABLE = "output of kernels"
# What CUDA has for it unless told otherwise.
CAPACITY = 1 << 20
# Before the first record.
HEADER_BYTES = 16
# Before a record's arguments.
RECORD_BYTES = 40
# The most that printf takes: 32 arguments.
MOST_ARGUMENT_BYTES = 256


@unique
class Kind(IntEnum):
    """What a record is."""

    PRINT = 1
    ASSERTION = 2


# The functions that leave records, by names that no text can have. Who calls one learns nothing.
RECORDERS = {each: f"record of {each.name.lower()}" for each in Kind}
