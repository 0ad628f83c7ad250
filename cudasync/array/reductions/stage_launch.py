"""Floor 4, reductions. A stage made ready: its kernel, and the constants of its launches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cudasync.array.expressions.c_types import C_TYPES
from cudasync.array.reductions.kernel import Job, kernel_name, source
from cudasync.array.steps.compilation import kernel_of
from cudasync.array.steps.step import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.array.reductions.stages import Stage
    from cudasync.driver import Device


class Stepped(NamedTuple):
    """A stage made ready."""

    step: Step
    job: Job
    stage: Stage


def step_for(
    job: Job,
    stage: Stage,
    sizes: Sequence[int],
    divisor: float,
    device: Device,
    scalars: Sequence[Any] = (),
) -> Step:
    """The launch of a stage; `sizes` has the bytes of an element of each array that it reads."""
    numbers = numbers_of(stage)
    if job.has_divisor:
        numbers.append((divisor, C_TYPES[job.dtype].letter))
    numbers += [
        (value, C_TYPES[dtype].letter) for value, dtype in zip(scalars, job.scalars, strict=True)
    ]
    first = [at * size for at, size in zip(stage.axes.first, sizes, strict=True)]
    grid, block = stage.launch_shape
    kernel = kernel_of(source(job, stage.kind), kernel_name(job), device)
    return Step(
        job.reduction.name,
        device,
        kernel,
        grid=grid,
        block=block,
        first=(*first, 0),
        numbers=numbers,
    )


def numbers_of(stage: Stage) -> list[tuple[Any, str]]:
    """The numbers behind the result's pointer, each with the letter that packs it."""
    letter = "Q" if stage.kind.is_wide else "I"
    return [(v, letter if v >= 0 else letter.lower()) for v in stage.numbers]
