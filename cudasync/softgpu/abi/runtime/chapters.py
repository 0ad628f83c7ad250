"""Cellar, abi. The whole table of the runtime API: the chapters of its manual, loaded.

Every client of the runtime API (its bindings, CuPy, native programs) takes `entries` from here.
"""

from __future__ import annotations

from cudasync.softgpu.abi.runtime import (  # noqa: F401 - they enter their functions.
    device_management,
    device_properties,
    driver_entry_points,
    error_handling,
    event_management,
    execution_contexts,
    execution_control,
    graph_management,
    graph_nodes,
    interprocess_communication,
    library_management,
    memory_copies,
    memory_management,
    occupancy,
    peer_device_memory_access,
    profiler_control,
    stream_management,
    stream_ordered_allocator,
    unified_addressing,
    version_management,
)
from cudasync.softgpu.abi.runtime.arrays import (  # noqa: F401
    array_copies,
    array_memory,
    linear_array_copies,
    texture_objects,
)
from cudasync.softgpu.abi.runtime.table import KINDS as KINDS
from cudasync.softgpu.abi.runtime.table import entries as entries
