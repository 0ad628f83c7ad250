"""Running a kernel with recorded accesses, and comparing them with the inferred ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from helpers.lowering import bare_launch

from cudasync.ptx.types import Access
from cudasync.softgpu.interface.access_recording import KINDS, Recording, Touch
from cudasync.softgpu.interface.launch import OutcomeKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.interface.launch import CompiledModule


@dataclass(frozen=True)
class Happened:
    """The accesses of a launch to one array: byte ranges from the array's start, and PTX lines."""

    read: list[tuple[int, int]]
    written: list[tuple[int, int]]
    read_first: list[tuple[int, int]]
    lines: dict[Touch, int]

    @property
    def as_access(self) -> Access:
        if self.read:
            return Access.READ_WRITE if self.written else Access.READ
        return Access.WRITE if self.written else Access.VALUE


def watch(arrays: Sequence[np.ndarray]) -> Recording:
    """Make a recording of these arrays, none of which overlap."""
    return Recording({(each.ctypes.data, each.ctypes.data + each.nbytes) for each in arrays})


def happened(recording: Recording, array: np.ndarray) -> Happened:
    """The recorded accesses to one of the arrays."""
    start = array.ctypes.data
    index = [low for low, _ in recording.ranges].index(start)
    ranges = [
        [(low - start, high - start) for low, high in recording.touched(index, kind)]
        for kind in KINDS
    ]
    firsts = {kind: recording.first(index, kind) for kind in KINDS}
    lines = {kind: first.line for kind, first in firsts.items() if first is not None}
    return Happened(*ranges, lines)


def record(
    module: CompiledModule, name: str, args: Sequence[bytes | np.ndarray | int], **options: Any
) -> tuple[list[Happened | None], list[Happened]]:
    """The accesses of a launch to each argument (None if it is no array) and to each variable.

    The module must be compiled for recording. Every array is its own allocation.
    """
    variables = bare_launch.make_variables(module)
    recording = watch([*(each for each in args if isinstance(each, np.ndarray)), *variables])
    outcome = bare_launch.run(
        module, name, args=args, recording=recording, variables=variables, **options
    )
    assert outcome.kind is OutcomeKind.DONE, outcome
    found = [happened(recording, each) if isinstance(each, np.ndarray) else None for each in args]
    return found, [happened(recording, each) for each in variables]


def excesses(inferred: Access, real: Happened) -> list[str]:
    """A line for each kind of access that was made but not inferred."""
    found = []
    if real.read and not inferred.reads:
        found.append(f"{inferred.name}, but read in line {real.lines[Touch.READ]}")
    if real.written and not inferred.writes:
        found.append(f"{inferred.name}, but written in line {real.lines[Touch.WRITTEN]}")
    return found
