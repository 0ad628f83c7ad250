"""Floor 4, reductions. Places in long rows: the best of each part, then the place in one part.

Carrying a place along with each value costs half as much again as the value alone. So the first
launch leaves the best value of each part, as `max` does. The second launch chooses the first part
with the best value, and searches that part alone: it reads one part of a row again. The result is
the same as with stages that carry places: the first NaN, else the first of the best.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.array.memory.pool import Scratches
from cudasync.array.reductions.kernel import (
    Job,
    among_lanes,
    combined,
    counted_in,
    kernel_name,
    part_across,
    state_bytes,
    whole,
)
from cudasync.array.reductions.stage_launch import numbers_of, step_for
from cudasync.array.reductions.stages import BLOCK, WARP
from cudasync.array.reductions.table import REDUCTIONS
from cudasync.array.steps.compilation import kernel_of
from cudasync.array.steps.step import Step
from cudasync.array.steps.together import pushed_together
from cudasync.engine.replay.tape import rounds

if TYPE_CHECKING:
    from types import FrameType

    from cudasync.array.reductions.stages import Stage, StageClass
    from cudasync.driver import Device

# With fewer parts, the second launch reads more than a tenth of a row again.
_LEAST_PARTS = 10
_BEST = {">": "max", "<": "min"}


def is_found(job: Job, stage: Stage) -> bool:
    """Whether this way is better for rows that are cut like this."""
    return bool(job.reduction.finds) and stage.kind.threads == BLOCK and stage.parts >= _LEAST_PARTS


class Finding:
    """The two launches, for the first stage of a reduction and its whole job."""

    __slots__ = ("_best", "_place", "_scratches")

    def __init__(self, job: Job, stage: Stage, device: Device) -> None:
        values = REDUCTIONS[_BEST[job.reduction.finds]]
        best = Job(values, job.dtype, job.operands, job.element, None, is_long=job.is_long)
        sizes = [each.itemsize for each in job.operands]
        self._best = step_for(best, stage, sizes, 0, device)
        size = stage.axes.outputs * stage.parts * state_bytes(best)
        self._scratches = Scratches(device, size)
        first = [at * size for at, size in zip(stage.axes.first, sizes, strict=True)]
        self._place = Step(
            job.reduction.name,
            device,
            kernel_of(source(job, stage.kind), kernel_name(job), device),
            grid=(stage.axes.outputs,),
            block=(BLOCK,),
            first=(*first, 0, 0),
            numbers=numbers_of(stage),
        )

    def __call__(
        self, operands: tuple[Any, ...], target: Any, frame: FrameType, *, is_new: bool
    ) -> None:
        """Push both launches."""
        first, last, scratches = self._best, self._place, self._scratches
        if not pushed_together(first, operands, scratches, last, target, frame, again=operands):
            best = scratches.take(operands, rounds())
            first(operands, best, frame, is_new=True)
            last((*operands, best), target, frame, is_new=is_new)


def source(job: Job, kind: StageClass) -> str:
    """The text of the second kernel: a block for each output."""
    count = counted_in(kind)
    body = [
        "const unsigned thread = threadIdx.x;",
        f"const {count} output = blockIdx.x;",
        *_chosen_part(job, count),
        *part_across(BLOCK, count),
        "if (thread == 0) result[output] = finish(state);",
    ]
    return whole(job, kind, body, more=("const value_type* best",))


def _chosen_part(job: Job, count: str) -> list[str]:
    """Finds the `part` of an `output` with the best value in `best`; all threads get it."""
    return [
        f"__shared__ State chosen[{BLOCK}];",
        "{",
        "    State state = start();",
        f"    for ({count} i = thread; i < parts; i += {BLOCK})",
        "        state = combine(state, "
        f"State{{best[output * by_output + i * by_part], ({job.place})i}});",
        "    chosen[thread] = state;",
        "    __syncthreads();",
        f"    if (thread < {WARP}) {{",
        *(f"        {line}" for line in (*combined("chosen", BLOCK), *among_lanes())),
        "        if (thread == 0) chosen[0] = state;",
        "    }",
        "}",
        "__syncthreads();",
        f"const {count} part = chosen[0].place;",
    ]
