"""Cellar. Findings about threads of a kernel that miss each other: which waits where for which."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from cudasync.softgpu.core.checks.findings import Access, Finding
from cudasync.softgpu.core.modules.source_lines import source_of
from cudasync.softgpu.interface.convergence_records import name_of

if TYPE_CHECKING:
    from cudasync.softgpu.core.checks.convergence import Told
    from cudasync.softgpu.core.launch.kernel_launch import KernelLaunch
    from cudasync.softgpu.interface.launch import Dim3

_LANES = 32
_BLOCK = "__syncthreads()"


def finding_of(command: KernelLaunch, told: Told) -> Finding:
    """The finding for an error that the convergence check reports."""
    plan = command.plan
    block = place(told.block, plan.grid)
    who = f"thread {place(told.thread, plan.block)} of block {block}"
    kernel = command.describe()
    here = at_line(command, "wait", told.line, who)
    if told.missed is not None:
        return _of_missed(command, told, here, block)
    if told.members is not None:
        text = f"a thread of {kernel} meets lanes that it is none of"
        missing = "missing: the thread's own bit in the mask; name exactly those who come there"
        members = f"members {told.members:#010x}"
        return Finding("sync", text, [_verb(here, "meeting")], members, missing)
    if told.shuffled:
        text = f"a thread of {kernel} uses what it read of a lane that was not there"
        shuffle = at_line(command, "shuffle", told.shuffled, who)
        missing = (
            "missing: the lane that is read, in the mask and at the shuffle; or a use of the "
            "result by those alone who have read of one that is there"
        )
        return Finding("sync", text, [shuffle, _verb(here, "use")], "", missing)
    if told.other_line:
        text = f"threads of a block of {kernel} wait at two different barriers"
        others = at_line(command, "wait", told.other_line)
        missing = (
            f"missing: one {_BLOCK} that all threads of the block come to; in a branch it is "
            "allowed only where all threads take the same way"
        )
        return Finding("sync", text, [others, here], "", missing)
    all_ = prod(plan.block)
    text = (
        f"a barrier of {kernel} opens for {told.come} of a block's {all_} threads: the others "
        "have ended, or end without it"
    )
    missing = (
        f"missing: threads that have nothing to do, at {_BLOCK}: let them go round the work and "
        "not return"
    )
    return Finding("sync", text, [at_line(command, "wait", told.line)], f"block {block}", missing)


def _of_missed(command: KernelLaunch, told: Told, here: Access, block: Dim3) -> Finding:
    missed = told.missed
    assert missed is not None
    name = name_of(missed.what)
    index = told.thread // _LANES * _LANES + missed.absent
    other = f"thread {place(index, command.plan.block)} of block {block}"
    accesses = [here]
    if not missed.other_line:
        text = f"{name} of {command.describe()} names a lane that ends without coming there"
    else:
        what = _BLOCK if missed.other is None else name_of(missed.other)
        text = f"{name} of {command.describe()} names a lane that waits at {what}"
        accesses.append(at_line(command, "wait", missed.other_line, other))
    return Finding(
        "sync",
        text,
        accesses,
        f"members {missed.members:#010x}, of which {other} (lane {missed.absent}) does not come",
        "missing: a mask of those alone who come (__ballot_sync before the branch), or the call "
        "where all that it names come",
    )


def _verb(access: Access, verb: str) -> Access:
    return replace(access, verb=verb)


def at_line(command: KernelLaunch, verb: str, line: int, thread: str = "") -> Access:
    """The access of a launch, or of one of its threads, at a line."""
    source = source_of(command.function.module.source, line) if line else ""
    stamp, stream = command.stamp, command.stream.name
    return Access(command.describe(), verb, stamp.site, stream, line, source, thread, stamp.launch)


def place(index: int, extent: Dim3) -> Dim3:
    """x, y, z of a linear index."""
    x, y, _ = extent
    return index % x, index // x % y, index // (x * y)
