"""Cellar. Driver calls about the number of blocks of a kernel that a multiprocessor holds."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.pointers import need_code, put_i32, put_u64
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.launch.kernel_launch import best_block, resident_blocks, spare_shared

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine


@export("cuOccupancyMaxActiveBlocksPerMultiprocessor")
def cu_occupancy_max_active_blocks_per_multiprocessor(
    machine: Machine, blocks: int, function: int, threads: int, shared_bytes: int
) -> None:
    put_i32(blocks, resident_blocks(machine.modules.function(function), threads, shared_bytes))


@export("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags")
def cu_occupancy_max_active_blocks_per_multiprocessor_with_flags(
    machine: Machine, blocks: int, function: int, threads: int, shared_bytes: int, _flags: int
) -> None:
    put_i32(blocks, resident_blocks(machine.modules.function(function), threads, shared_bytes))


@export("cuOccupancyMaxPotentialBlockSize")
def cu_occupancy_max_potential_block_size(
    machine: Machine,
    grid: int,
    block: int,
    function: int,
    shared_of_block: int,
    shared_bytes: int,
    limit: int,
) -> None:
    if shared_of_block:
        need_code(shared_of_block)
        shared_of = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)(shared_of_block)
        found = best_block(machine.modules.function(function), limit, shared_of)
    else:
        found = best_block(machine.modules.function(function), limit, lambda _: shared_bytes)
    threads, blocks = found
    put_i32(grid, blocks)
    put_i32(block, threads)


@export("cuOccupancyMaxPotentialBlockSizeWithFlags")
def cu_occupancy_max_potential_block_size_with_flags(
    machine: Machine,
    grid: int,
    block: int,
    function: int,
    shared_of_block: int,
    shared_bytes: int,
    limit: int,
    _flags: int,
) -> None:
    cu_occupancy_max_potential_block_size(
        machine, grid, block, function, shared_of_block, shared_bytes, limit
    )


@export("cuOccupancyAvailableDynamicSMemPerBlock")
def cu_occupancy_available_dynamic_smem_per_block(
    machine: Machine, size: int, function: int, blocks: int, threads: int
) -> None:
    put_u64(size, spare_shared(machine.modules.function(function), blocks, threads))
