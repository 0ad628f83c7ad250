"""Floor 4, kernels. What a tape asks of a kernel that is called on arrays: see `engine/replay`.

A call is compared by the regions and forms of its arrays, and by the class and bits of its numbers.
Calls that agree in these launch the same work. A call is not replayed if more than that decides
what it does: arrays of other libraries, views with gaps, pointers in memory, variables of a module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync import driver
from cudasync.array.array import Array
from cudasync.array.kernels.indirect_memory import reach_of
from cudasync.array.kernels.launch_accesses import NARROWED
from cudasync.array.replay import numbers_among, taker
from cudasync.engine.hazards.interval_map import Everywhere
from cudasync.engine.replay.sequence import Call

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from cudasync.array.kernels.kernel import BoundKernel, Kernel
    from cudasync.engine.hazards.accesses import Accesses


def captured(
    bound: BoundKernel,
    kernel: Kernel,
    args: Sequence[Any],
    accesses: Accesses,
    frame: FrameType,
    *,
    changes: bool,
) -> Call | str:
    """The call of `bound` as a step, which ran `kernel`: the same kernel, or the one of another
    device. Its numbers may be others each time if it `changes`. Else why it cannot be one."""
    values = [a.array if type(a) in NARROWED else a for a in args]
    (only_read, updated, _), read, written = accesses
    if read or written:
        return f"kernel {kernel.name} uses variables of its module"
    if (
        any(region.__class__ is Everywhere for region in only_read + updated)
        or reach_of(kernel, args, values) is not None
    ):
        return f"kernel {kernel.name} follows pointers in memory"
    packing = kernel.packing
    block = packing.take(values)
    answer, names = "", dict[str, Any]()
    changing: frozenset[int] = frozenset()
    if changes:
        changing = numbers_among(args)
        answer, names = packing.written_anew(block, args, changing)
    classes = {i: type(each) for i, each in enumerate(args) if type(each) in NARROWED}
    takes = taker(values, Array, changing, answer, names, classes)
    if takes is None:
        return "an argument is neither an array of ours without gaps nor a plain number"
    shape = kernel.shape(bound.grid, bound.block, bound.shared_bytes)
    launch = driver.Launch(kernel, shape, block, None)
    place = frame.f_code, frame.f_lasti
    return Call(bound, *place, takes, launch, accesses, kernel.label, None, bool(changing))
