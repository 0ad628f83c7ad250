"""Cellar. The pending launches of a grid: memory in which its threads leave launches.

The functions that device code calls to launch kernels (`core/linking/launch_functions.py`) write
this memory, and the core reads it once the grid's blocks are over. Each launch of a kernel that may
launch others has memory of its own, whose address stands in place of the module's `VARIABLE`:

    header, then a row for each function of the text, then slots, then an error code for each thread

A slot is a launch: `SLOT` words, then the parameters as the launching thread laid them out.
"""

from __future__ import annotations

from typing import Final

# Of the module: one header, which stays unused.
VARIABLE: Final = "cudasync_pending_launches"

# The header: offsets of 32-bit numbers.
TAKEN: Final = 0
"""The slots handed out; more than `MOST` if some were refused."""
MOST: Final = 4
DEPTH: Final = 8
"""The grids above this grid."""
MOST_DEPTH: Final = 12
FUNCTIONS: Final = 16
SLOT_SIZE: Final = 20
FAILED: Final = 24
"""Not 0 once a thread had an error."""
LAUNCHED: Final = 28
"""The launches so far, which gives them their order."""
STREAMS: Final = 32
EVENTS: Final = 36
"""The streams and events that the grid has made."""
ORDINAL: Final = 40
# Offsets of addresses.
ROWS_AT: Final = 48
SLOTS_AT: Final = 56
ERRORS_AT: Final = 64
# The values of cudaDeviceGetLimit, 64 bits each.
LIMITS: Final = 72
LIMIT_COUNT: Final = 7
HEADER_BYTES: Final = 128

# A row: the most threads of a block, 0 for what is no kernel; the most dynamic shared memory.
ROW_BYTES: Final = 8

# A slot: function, grid, block, shared bytes, state, stream, block of the launching thread, order.
SLOT: Final = "<Q3I3IIIQQQ"
SLOT_BYTES: Final = 64
STATE_AT: Final = 36
STREAM_AT: Final = 40
BLOCK_AT: Final = 48
ORDER_AT: Final = 56
HANDED_OUT: Final = 1
IS_LAUNCHED: Final = 2

# cudaStreamTailLaunch; cudaStreamFireAndForget is one more. A grid's own streams and events have
# handles from 16 on, in turn 8 apart.
TAIL_LAUNCH: Final = 3
FIRE_AND_FORGET: Final = 4
FIRST_HANDLE: Final = 16

# The most levels of grids below a grid of the host, as in the CUDA programming guide.
DEEPEST: Final = 24
# cudaLimitDevRuntimePendingLaunchCount.
PENDING_LIMIT: Final = 4
