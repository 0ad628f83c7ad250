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
        text = f"a thread of {kernel} is not in its own member mask"
        missing = "missing: the thread's own bit in the mask; name exactly the lanes that arrive"
        members = f"members {told.members:#010x}"
        return Finding("sync", text, [_verb(here, "meeting")], members, missing)
    if told.shuffled:
        text = f"a thread of {kernel} uses a value from a lane that did not take part"
        shuffle = at_line(command, "shuffle", told.shuffled, who)
        missing = (
            "missing: the source lane, in the mask and at the shuffle; or a use of the result "
            "only by threads whose source lane takes part"
        )
        return Finding("sync", text, [shuffle, _verb(here, "use")], "", missing)
    if told.other_line:
        text = f"threads of a block of {kernel} wait at two different barriers"
        others = at_line(command, "wait", told.other_line)
        missing = (
            f"missing: one {_BLOCK} that all threads of the block reach; a branch may contain a "
            "barrier only if all threads take the same path"
        )
        return Finding("sync", text, [others, here], "", missing)
    all_ = prod(plan.block)
    text = (
        f"a barrier of {kernel} completes with {told.come} of a block's {all_} threads: the "
        "others exit without reaching it"
    )
    missing = (
        f"missing: idle threads at {_BLOCK}: put the work, not the barrier, into the branch, and "
        "do not return early"
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
        text = f"{name} of {command.describe()} names a lane that exits without reaching it"
    else:
        what = _BLOCK if missed.other is None else name_of(missed.other)
        text = f"{name} of {command.describe()} names a lane that waits at {what}"
        accesses.append(at_line(command, "wait", missed.other_line, other))
    return Finding(
        "sync",
        text,
        accesses,
        f"members {missed.members:#010x}: {other} (lane {missed.absent}) does not arrive",
        "missing: a mask of only the lanes that arrive (__ballot_sync before the branch), or the "
        "call at a place that all named lanes reach",
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
