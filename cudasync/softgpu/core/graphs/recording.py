"""Cellar. From a command that a captured stream is given to the work of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.core.graphs import boxes
from cudasync.softgpu.core.graphs.batches import of_command
from cudasync.softgpu.core.graphs.works import CopyWork, FillWork, HostWork, KernelWork, Work
from cudasync.softgpu.core.host_functions import Callback, HostFunction
from cudasync.softgpu.core.launches import KernelLaunch
from cudasync.softgpu.core.library_calls import LibraryCall, LibraryWork
from cudasync.softgpu.core.results import STREAM_CAPTURE_UNSUPPORTED, DriverFailure
from cudasync.softgpu.core.transfers import Copy, Fill
from cudasync.softgpu.core.wait_values import WaitValue, WriteValue

if TYPE_CHECKING:
    from cudasync.softgpu.core.commands import Command


def work_of(command: Command) -> Work:
    """What the command would do; STREAM_CAPTURE_UNSUPPORTED if no node can do that."""
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
                boxes.line(command.target, command.source, command.size_bytes)
                if command.rows == 1
                else boxes.rectangle(
                    command.target, command.source, command.size_bytes, command.rows, pitches
                )
            )
            return CopyWork(box, command.target, command.source, command.stream.context)
        case boxes.BoxCopy():
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
    raise DriverFailure(STREAM_CAPTURE_UNSUPPORTED, f"{command.describe()} can not be captured")
