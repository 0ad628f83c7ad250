"""Floor 5. Data parallel: every rank has the weights, and a part of each batch.

The program hands gradients over one by one, as backward computes them. Ready buckets travel while
backward computes the rest; hazards on their bytes order both.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cudasync import xp
from cudasync.array import copy
from cudasync.distributed.argument_checks import (
    a_communicator,
    alike,
    as_rank,
    listed,
    raise_unless_callable,
)
from cudasync.distributed.reductions import checked
from cudasync.parallel.buckets import Bucket, Name, laid_out, planned
from cudasync.parallel.parameters import Weights
from cudasync.parallel.plan_agreement import raise_unless_all_plan
from cudasync.xp.parameter_checks import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cudasync.distributed.communicator import Communicator
    from cudasync.distributed.work import Work

UNUSED = ("error", "zero")


class DataParallel:
    """Sums the gradients of all ranks, in buckets that travel during the backward pass.

    `parameters` are arrays in the order in which the model uses them: a mapping by name, or a
    sequence, whose names are 0, 1, ... Each is a list with one array for each rank of this process;
    a process with one rank may give the array alone. The weights of rank 0 are sent to all ranks,
    unless `broadcast` is False. `op` is "mean" or "sum".

    A bucket has up to `bucket_bytes`; the first has up to `first_bucket_bytes`, so that it starts
    early. Buckets are launched in one order on all ranks, each after its last gradient. A gradient
    that is not ready at `finish` is an error, or counts as zeros (`unused="zero"`). A `hook` is
    called with each `Bucket` in place of its all_reduce, and returns the `Work`.

    No call blocks, except the creation between processes, where all ranks compare their plans. Use
    it from one thread at a time. Raises ValueError for no parameters, for parameters that do not
    fit the ranks, and if the ranks' plans differ; TypeError for a dtype without this reduction.
    """

    def __init__(
        self,
        parameters: Any,
        comm: Communicator,
        *,
        bucket_bytes: int = 25 << 20,
        first_bucket_bytes: int = 1 << 20,
        op: str = "mean",
        unused: str = "error",
        hook: Callable[[Bucket], Work] | None = None,
        broadcast: bool = True,
    ) -> None:
        if op not in ("sum", "mean"):
            raise ValueError(f"op= must be 'sum' or 'mean', not {op!r}")
        if unused not in UNUSED:
            raise ValueError(f"unused= must be one of {', '.join(UNUSED)}, not {unused!r}")
        for what, length in ("bucket", bucket_bytes), ("first_bucket", first_bucket_bytes):
            if whole(length, f"{what}_bytes") <= 0:
                raise ValueError(f"{what}_bytes must be a number above 0, not {length}")
        if hook is not None:
            raise_unless_callable(hook, "hook=")
        self.comm = a_communicator(comm)
        self.op = op
        self._weights = Weights(parameters, comm)
        known = list(self._weights.known.values())
        for each in known:
            checked(op, each.dtype)
        plan = planned(known, bucket_bytes, min(first_bucket_bytes, bucket_bytes))
        raise_unless_all_plan(comm, plan, op, unused, broadcast)
        self._is_zero = unused == "zero"
        self._hook = hook or Bucket.all_reduce
        self._buckets, self._views = laid_out(plan, comm, op)
        self._bucket_of = {name: each.index for each in self._buckets for name in each.names}
        # By name and number of a rank here: gradients that were handed over in this step, and
        # views with gradients that are not reduced yet.
        self._ready: set[tuple[Name, int]] = set()
        self._held: set[tuple[Name, int]] = set()
        # Works of this step, for the first buckets of the plan, and works of the step before.
        self._works: list[Work] = []
        self._finished: list[Work] = []
        # The number of gradients that each bucket still waits for in this step.
        self._missing: list[int] = []
        self._is_local = False
        self._begin()
        if broadcast:
            for arrays in self._weights.arrays.values():
                comm.broadcast(arrays)

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """The buckets, in the order of their launches."""
        return tuple(self._buckets)

    @property
    def works(self) -> tuple[Work, ...]:
        """The launched works of the current step, in order; between steps, of the last step."""
        return tuple(self._works if self._ready else self._finished)

    def gradient(self, name: Name) -> Any:
        """The memory of a gradient, which `ready` fills, and where `finish` leaves the reduction.

        It has the parameter's shape. Backward may write it directly (`out=`), and then call
        `ready(name)` without a gradient.
        """
        self._weights.parameter(name)
        return self._weights.as_given(name, self._views[name])

    def ready(self, name: Name, gradient: Any = None, *, rank: int | None = None) -> None:
        """Hand over a gradient, once the op that computes it is pushed, so that its bucket may go.

        `gradient` has the parameter's form: one array, or a list with one for each rank of this
        process; with `rank=` it is the array of that rank. It is copied, so the caller may reuse
        it. Without `gradient`, `gradient(name)` holds it already. Returns at once.

        Raises KeyError for an unknown name; ValueError for a gradient that was ready before or has
        another shape or device; TypeError for another dtype. If a hook raises, the gradient is
        handed over, and the next call launches its bucket again.
        """
        here = self._here(name, rank)
        given = {} if gradient is None else self._given(name, gradient, here, rank)
        for each in here:
            if each in given:
                view = self._views[name][each]
                if (name, each) in self._held:
                    xp.add(view, given[each], out=view)
                else:
                    copy(view, given[each], name=f"gradient {name}", priority=1)
            self._note(name, each)
        self._launch()

    def unused(self, name: Name, *, rank: int | None = None) -> None:
        """Declare that this step computes no such gradient: it counts as zeros in its bucket."""
        for each in self._here(name, rank):
            if (name, each) not in self._held:
                self._views[name][each][...] = 0
            self._note(name, each)
        self._launch()

    def finish(self) -> dict[Name, Any]:
        """End the step, once all gradients are handed over: each parameter's reduction, by name.

        Reductions have the parameters' form, in the memory of `gradient(name)`, and stay valid
        until the next step's gradients. Returns at once. In `no_sync` they are this rank's own
        sums.

        Raises ValueError, which names the missing gradients, unless `unused="zero"`. The step is
        not lost: hand these over, or call `unused(name)`, and finish again. The same holds if the
        launch of a bucket raises.
        """
        if not self._is_local:
            missing = self._not_ready()
            if missing and not self._is_zero:
                told = ", ".join(repr(name) for name in dict(missing))
                raise ValueError(
                    f"no gradient was ready for {told}: call unused(name), or give unused='zero'"
                )
            for name, each in missing:
                self.unused(name, rank=self.comm.ranks[each])
            # A launch that raised, in `ready` or here, is repeated: without it gradients would
            # be returned that are not reduced.
            self._launch()
            self._begin()
        return {name: self.gradient(name) for name in self._views}

    def reset(self) -> None:
        """Drop the current step, and the sums of `no_sync`.

        Other ranks that have launched further buckets wait for this rank in vain.
        """
        self._held.clear()
        self._begin()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within the block, sum gradients on this rank and send nothing; `ready` may be repeated.

        The next step outside adds its gradients and reduces the sum. ValueError within a step.
        """
        if self._ready:
            raise ValueError("a step has begun: call finish() first, or reset()")
        was, self._is_local = self._is_local, True
        try:
            yield
        finally:
            self._is_local = was

    def _given(
        self, name: Name, gradient: Any, here: Sequence[int], rank: int | None
    ) -> dict[int, Any]:
        """The gradients by the number of the rank here, checked."""
        parameter, what = self._weights.parameter(name), f"gradient {name!r}"
        if rank is not None:
            gradient = [gradient if each in here else None for each in self._all]
        rows = listed(self.comm, gradient, what, [self.comm.ranks[each] for each in here])
        alike([rows[each] for each in here], parameter.shape, parameter.dtype, what)
        return {each: rows[each] for each in here}

    def _here(self, name: Name, rank: int | None) -> Sequence[int]:
        """The numbers of the named ranks here; ValueError if the gradient of one is ready."""
        self._weights.parameter(name)
        here: Sequence[int] = self._all
        if rank is not None:
            rank = as_rank(self.comm, rank, "rank")
            if rank not in self.comm.ranks:
                raise ValueError(f"rank={rank} is in another process: this is {self.comm!r}")
            here = [self.comm.ranks.index(rank)]
        if any((name, each) in self._ready for each in here):
            raise ValueError(
                f"gradient {name!r} was ready in this step already: call finish() first"
            )
        return here

    def _note(self, name: Name, here: int) -> None:
        self._held.add((name, here))
        if not self._is_local:
            self._ready.add((name, here))
            self._missing[self._bucket_of[name]] -= 1

    def _launch(self) -> None:
        """Launch full buckets, in the order of the plan; a bucket waits for the buckets before it.

        Otherwise ranks whose gradients come in different orders would match different calls.
        """
        if self._is_local:
            return
        while len(self._works) < len(self._buckets) and not self._missing[len(self._works)]:
            bucket = self._buckets[len(self._works)]
            self._works.append(self._hook(bucket))
            self._held -= {(name, each) for name in bucket.names for each in self._all}

    def _begin(self) -> None:
        self._finished, self._works = self._works, []
        self._ready.clear()
        self._missing = [len(each.names) * len(self._all) for each in self._buckets]

    @property
    def _all(self) -> range:
        return range(len(self.comm.ranks))

    def _not_ready(self) -> list[tuple[Name, int]]:
        return [
            (name, each)
            for bucket in self._buckets
            for name in bucket.names
            for each in self._all
            if (name, each) not in self._ready
        ]

    def __repr__(self) -> str:
        return f"<DataParallel {len(self._views)} parameters, {len(self._buckets)} buckets>"
