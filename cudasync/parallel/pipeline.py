"""Floor 5. Pipeline parallel: a model in stages, each on a rank, and batches in parts.

A stage is two functions of the caller's. The communicator sends and receives arrays between stages,
as ops, so stages work on different micro-batches at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array import empty
from cudasync.distributed.argument_checks import (
    a_communicator,
    alike,
    listed,
    raise_unless_callable,
)
from cudasync.parallel.plan_agreement import raise_unless_all_plan
from cudasync.parallel.replicas import shares
from cudasync.parallel.schedules import SCHEDULES, Step
from cudasync.xp.parameter_checks import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.distributed.communicator import Communicator


class Stage:
    """A part of a model: its computation of a micro-batch, and of the gradients.

    `forward(x)` returns a pair: the output for the next stage, and data that `backward` needs.
    `backward(kept, gradient)` takes this data and the gradient of the output. It adds to the
    stage's own gradients, and returns the gradient of `x`; the first stage may return None.

    `takes` is the shape of one received row of `x`, without the axis of the batch, and its dtype.
    The first stage needs none.
    """

    def __init__(
        self,
        forward: Callable[[Any], tuple[Any, Any]],
        backward: Callable[[Any, Any], Any],
        *,
        takes: tuple[Sequence[int], Any] | None = None,
    ) -> None:
        raise_unless_callable(forward, "forward of a stage")
        raise_unless_callable(backward, "backward of a stage")
        self.forward = forward
        self.backward = backward
        self.takes: tuple[tuple[int, ...], np.dtype[Any]] | None = None
        if takes is not None:
            shape, dtype = takes
            self.takes = tuple(shape), np.dtype(dtype)


class Pipeline:
    """Stages, one on each rank, through which a batch goes in micro-batches.

    `stages` is a list with one stage for each rank of this process, or a single stage. `loss(y,
    target)` returns the loss of a micro-batch and the gradient of `y`; the process of the last rank
    needs it. Losses of micro-batches are summed to the loss of the batch, so for a mean divide by
    the rows of the batch.

    `schedule` is "1f1b" or "gpipe". With "1f1b" stage s of S keeps the backward data of at most S -
    s micro-batches, with "gpipe" of all. Raises ValueError for an unknown schedule, for stages that
    do not fit the ranks, and, between processes, if the ranks' arguments differ. The ranks compare
    them once, which blocks.
    """

    def __init__(
        self,
        stages: Stage | Sequence[Stage],
        comm: Communicator,
        *,
        micro_batches: int = 4,
        schedule: str = "1f1b",
        loss: Callable[[Any, Any], tuple[Any, Any]] | None = None,
    ) -> None:
        a_communicator(comm)
        given = [stages] if isinstance(stages, Stage) else list(stages)
        if len(given) != len(comm.ranks):
            raise ValueError(
                f"a pipeline takes one stage for each rank of this process: {len(comm.ranks)}, "
                f"not {len(given)}"
            )
        if schedule not in SCHEDULES:
            raise ValueError(f"schedule= must be one of {', '.join(SCHEDULES)}, not {schedule!r}")
        if whole(micro_batches, "micro_batches") < 1:
            raise ValueError(f"micro_batches must be 1 or more, not {micro_batches}")
        if loss is not None:
            raise_unless_callable(loss, "loss=")
        if loss is None and comm.size - 1 in comm.ranks:
            raise ValueError("loss= is missing: the process of the last stage needs it")
        for rank, stage in zip(comm.ranks, given, strict=True):
            if rank and stage.takes is None:
                raise ValueError(
                    f"stage {rank} receives rows: give its takes=(shape of a row, dtype)"
                )
        raise_unless_all_plan(comm, micro_batches, schedule)
        self.comm = comm
        self.micro_batches = micro_batches
        self.schedule = schedule
        self._loss = loss
        self._stages = dict(zip(comm.ranks, given, strict=True))
        self._device = dict(zip(comm.ranks, comm.devices, strict=True))

    def step(self, x: Any = None, target: Any = None, *, rows: int | None = None) -> list[Any]:
        """Push a forward and a backward of each micro-batch; returns at once.

        `x` is the batch, on the device of the first rank, and `target` the argument of `loss`, on
        the device of the last rank. Other ranks give None, and a process with neither gives
        `rows=`. The first axis of both is cut into micro-batches, the longer ones first. Returns
        the losses by micro-batch in the process of the last rank, else an empty list.

        Raises ValueError for row counts that differ, or are fewer than micro-batches. Raises
        TypeError for wrong results of the functions; other ranks then wait in vain.
        """
        run = _Run(self, *self._batch(x, target, rows))
        left = {
            rank: SCHEDULES[self.schedule](rank, self.comm.size, self.micro_batches)
            for rank in self.comm.ranks
        }
        # Stages take turns. A stage takes its next step if the input is sent, or comes from another
        # process.
        while count := sum(map(len, left.values())):
            for rank, steps in left.items():
                if steps and run.is_sent(rank, steps[0]):
                    run.do(rank, steps.pop(0))
            assert sum(map(len, left.values())) < count, "the stages wait for each other in a ring"
        return run.losses

    def _batch(self, x: Any, target: Any, rows: int | None) -> tuple[Any, Any, list[slice]]:
        last = self.comm.size - 1
        for rank, each, what in (0, x, "x"), (last, target, "target"):
            if rank in self._stages:
                row = [each if other == rank else None for other in self.comm.ranks]
                listed(self.comm, row, what, (rank,))
        lengths = {each.shape[0] for each in (x, target) if each is not None}
        lengths |= {rows} if rows is not None else set()
        if len(lengths) != 1:
            raise ValueError(
                f"x, target and rows= must agree on one number of rows, not "
                f"{sorted(lengths) if lengths else 'none: give rows='}"
            )
        (length,) = lengths
        if length < self.micro_batches:
            raise ValueError(
                f"{length} rows cannot be split into {self.micro_batches} equal micro-batches"
            )
        return x, target, shares(length, self.micro_batches)

    def __repr__(self) -> str:
        return (
            f"<Pipeline {self.schedule}, {self.comm.size} stages, "
            f"{self.micro_batches} micro-batches>"
        )


class _Run:
    """One step of a pipeline under way: steps that are done, and data kept for backwards."""

    def __init__(self, pipeline: Pipeline, x: Any, target: Any, cuts: list[slice]) -> None:
        self._pipeline = pipeline
        self._comm = pipeline.comm
        self._last = pipeline.comm.size - 1
        self._x = x
        self._target = target
        self._cuts = cuts
        self.losses: list[Any] = []
        # By rank and number of the micro-batch: the stage's data for backward, and shape and dtype
        # of its output, whose gradient comes back. The last stage has the gradient itself.
        self._kept: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._done: set[tuple[int, Step]] = set()

    def is_sent(self, rank: int, step: Step) -> bool:
        """True if the step receives nothing, or from another process, or its send is pushed."""
        source = rank - 1 if step.kind == "forward" else rank + 1
        if not 0 <= source <= self._last or source not in self._comm.ranks:
            return True
        return (source, step) in self._done

    def do(self, rank: int, step: Step) -> None:
        """Push the step."""
        (self._forward if step.kind == "forward" else self._backward)(rank, step.number)
        self._done.add((rank, step))

    def _forward(self, rank: int, number: int) -> None:
        stage = self._pipeline._stages[rank]
        cut = self._cuts[number]
        if rank == 0:
            x = self._x[cut]
        else:
            assert stage.takes is not None
            shape, dtype = stage.takes
            x = self._received(rank, rank - 1, (cut.stop - cut.start, *shape), dtype)
        y, kept = _pair(stage.forward(x), "forward of a stage")
        if rank < self._last:
            self._comm.send(y, rank + 1, rank=rank)
            self._kept[rank, number] = kept, (y.shape, y.dtype)
            return
        assert self._pipeline._loss is not None
        loss, gradient = _pair(self._pipeline._loss(y, self._target[cut]), "loss")
        alike([gradient], y.shape, y.dtype, "the gradient of the loss")
        self.losses.append(loss)
        self._kept[rank, number] = kept, gradient

    def _backward(self, rank: int, number: int) -> None:
        kept, of_output = self._kept.pop((rank, number))
        if rank < self._last:
            of_output = self._received(rank, rank + 1, *of_output)
        gradient = self._pipeline._stages[rank].backward(kept, of_output)
        if rank:
            if gradient is None:
                raise TypeError(
                    f"backward of stage {rank} must return the gradient of its x, not None"
                )
            self._comm.send(gradient, rank - 1, rank=rank)

    def _received(self, rank: int, source: int, shape: tuple[int, ...], dtype: Any) -> Any:
        made = empty(shape, dtype, device=self._pipeline._device[rank])
        self._comm.recv(made, source, rank=rank)
        return made


def _pair(given: Any, what: str) -> tuple[Any, Any]:
    if not isinstance(given, tuple) or len(given) != 2:
        raise TypeError(
            f"the {what} must return a pair, not {type(given).__name__}: see the "
            f"docstring of Pipeline"
        )
    return given
