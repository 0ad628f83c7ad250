"""Cellar. Converts the commands of captured streams into the works of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.core.driver_types.result_codes import (
    STREAM_CAPTURE_UNSUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.graphs.library_calls import LibraryCall, LibraryWork
from cudasync.softgpu.core.graphs.memory_operation_nodes import of_command
from cudasync.softgpu.core.graphs.node_parameters import (
    CopyWork,
    FillWork,
    HostWork,
    KernelWork,
    Work,
)
from cudasync.softgpu.core.launch.kernel_launch import KernelLaunch
from cudasync.softgpu.core.memory import box_copies
from cudasync.softgpu.core.memory.copy_commands import Copy, Fill
from cudasync.softgpu.core.streams.host_functions import Callback, HostFunction
from cudasync.softgpu.core.streams.memory_operations import WaitValue, WriteValue

if TYPE_CHECKING:
    from cudasync.softgpu.core.streams.commands import Command


def work_of(command: Command) -> Work:
    """The work of a command; STREAM_CAPTURE_UNSUPPORTED if no node can do it."""
    match command:
        case KernelLaunch():
            return KernelWork(
                command.plan.machine,
                command.plan.function,
                command.plan.grid,
                command.plan.block,
                command.plan.dynamic_shared_bytes,
                command.parameters,
                command.workspace is not None,
                command.stream.priority,
            )
        case Copy():
            pitches = (command.target_pitch, command.source_pitch)
            box = (
                box_copies.line(command.target, command.source, command.size_bytes)
                if command.rows == 1
                else box_copies.rectangle(
                    command.target, command.source, command.size_bytes, command.rows, pitches
                )
            )
            return CopyWork(box, command.target, command.source, command.stream.context)
        case box_copies.BoxCopy():
            return CopyWork(command.box, command.target, command.source, command.stream.context)
        case Fill():
            return FillWork(
                command.target,
                command.pitch,
                int.from_bytes(command.pattern, "little"),
                len(command.pattern),
                command.size_bytes // len(command.pattern),
                command.rows,
                command.stream.context,
            )
        case WaitValue() | WriteValue():
            return of_command(command)
        case LibraryCall():
            return LibraryWork(command.routine)
        case HostFunction() if not isinstance(command, Callback):
            return HostWork(command.function, command.user_data, command.workers)
    raise DriverFailure(STREAM_CAPTURE_UNSUPPORTED, f"{command.describe()} cannot be captured")
