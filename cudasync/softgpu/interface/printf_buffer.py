"""Cellar. The printf buffer: the layout of kernels' printed records, for writer and reader.

A module that calls vprintf or __assertfail has one more variable, which no text can name. Its first
word counts the bytes taken by records. The records follow, in the order in which threads took them:

    u64 size in bytes << 8 | kind    u64 format or message
    u32 block x, y, z                u32 thread x, y, z
    then the arguments as the kernel laid them out, or file, line and function of an assertion
    then strings that arguments point to, in memory that the host does not see later

The argument of such a string is INSIDE plus the string's place in the record.

A record that does not fit is lost, and so are all later ones, until the host has read the variable.
"""

from __future__ import annotations

from enum import IntEnum, unique

VARIABLE = "output of kernels"
# CUDA's default.
CAPACITY = 1 << 20
# The bytes before the first record.
HEADER_BYTES = 16
# The bytes before a record's arguments.
RECORD_BYTES = 40
# The most that printf takes: 32 arguments.
MOST_ARGUMENT_BYTES = 256
# No address has these bits.
INSIDE = 0xFFFF << 48
# A string in a record is cut to this, its terminator included.
MOST_STRING_BYTES = 4096


@unique
class Kind(IntEnum):
    """The kind of a record."""

    PRINT = 1
    ASSERTION = 2


# The functions that write records, under names that no text can have. They return nothing.
RECORDERS = {each: f"record of {each.name.lower()}" for each in Kind}
