"""Floor 5. Data parallel: every rank has the weights, and a part of each batch.

Gradients are handed over one by one, as backward computes them. What is ready goes while the rest
is computed: the order of both follows from the bytes that they read and write.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cudasync import xp
from cudasync.array import copy
from cudasync.distributed.checking import (
    a_communicator,
    alike,
    as_rank,
    listed,
    raise_unless_callable,
)
from cudasync.distributed.reducing import checked
from cudasync.parallel.agreeing import raise_unless_all_plan
from cudasync.parallel.buckets import Bucket, Name, laid_out, planned
from cudasync.parallel.parameters import Weights
from cudasync.xp.places import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cudasync.distributed.communicator import Communicator
    from cudasync.distributed.work import Work

UNUSED = ("error", "zero")


class DataParallel:
    """Adds up the gradients of all ranks, in buckets that travel while backward goes on.

    `parameters` are arrays in the order in which the model uses them: a mapping by name, or a
    sequence, whose names are 0, 1, ...; each is one array for each rank of this process in a list,
    or, where there is one rank, the array alone. The weights of rank 0 are sent to all, unless
    `broadcast` is False. `op` is "mean" or "sum".

    Gradients share a bucket up to `bucket_bytes`, the first up to `first_bucket_bytes`, which is to
    go early. Buckets are launched in one order on all ranks, each with its last gradient at the
    soonest. What is not ready at `finish` is an error, or counts as zeros (`unused="zero"`). A
    `hook` is called with each `Bucket` in place of its all_reduce, and returns the `Work`.

    Nothing blocks, but making one between processes, where all ranks compare their plans. One
    thread at a time. Raises ValueError for no parameters, for parameters that do not fit the ranks
    and for ranks that plan otherwise; TypeError for a dtype without this reduction.
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
            raise ValueError(f"gradients are added up by op='sum' or 'mean', not {op!r}")
        if unused not in UNUSED:
            raise ValueError(f"unused= is one of {', '.join(UNUSED)}, not {unused!r}")
        for what, length in ("bucket", bucket_bytes), ("first_bucket", first_bucket_bytes):
            if whole(length, f"{what}_bytes") <= 0:
                raise ValueError(f"{what}_bytes is a number of bytes above 0, not {length}")
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
        # By name and number of a rank here: handed over in this step, and holding what is not
        # reduced yet.
        self._ready: set[tuple[Name, int]] = set()
        self._held: set[tuple[Name, int]] = set()
        # Launched in this step, which is a beginning of the buckets, and in the step before.
        self._works: list[Work] = []
        self._finished: list[Work] = []
        # How many gradients each bucket waits for in this step.
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
        """What was launched for the step that has begun, in order; between steps, for the last."""
        return tuple(self._works if self._ready else self._finished)

    def gradient(self, name: Name) -> Any:
        """Where a gradient lies: what `ready` fills, and `finish` leaves the reduction in.

        It has the parameter's shape. Backward may write there by itself (`out=`), and then call
        `ready(name)` without a gradient.
        """
        self._weights.parameter(name)
        return self._weights.as_given(name, self._views[name])

    def ready(self, name: Name, gradient: Any = None, *, rank: int | None = None) -> None:
        """A gradient is computed, or what computes it is pushed: it may go with its bucket.

        `gradient` is as the parameter was: one array, or a list with one for each rank of this
        process; with `rank=` it is that of one rank here. It is copied, and free afterwards;
        without it, `gradient(name)` holds the gradient already. Returns at once.

        Raises KeyError for a name that is no parameter's, ValueError for a gradient that was ready
        before or has another shape or place, TypeError for another dtype.
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
        """This step computes no such gradient here: it counts as zeros, and its bucket may go."""
        for each in self._here(name, rank):
            if (name, each) not in self._held:
                self._views[name][each][...] = 0
            self._note(name, each)
        self._launch()

    def finish(self) -> dict[Name, Any]:
        """All gradients of the step are handed over: each parameter's reduction, by name.

        They are as the parameters were given, in the memory of `gradient(name)`, and hold until the
        next step's gradients come. Returns at once. In `no_sync` they are this rank's own sums.

        Raises ValueError, which names what is missing, unless `unused="zero"`; nothing is lost by
        it: hand these over, or say `unused(name)`, and finish again.
        """
        if not self._is_local:
            missing = self._not_ready()
            if missing and not self._is_zero:
                told = ", ".join(repr(name) for name in dict(missing))
                raise ValueError(
                    f"no gradient was ready of {told}: say unused(name), or unused='zero' for all"
                )
            for name, each in missing:
                self.unused(name, rank=self.comm.ranks[each])
            self._begin()
        return {name: self.gradient(name) for name in self._views}

    def reset(self) -> None:
        """Forget the step that has begun, and what `no_sync` added up.

        Where other ranks have launched buckets that this one has not, they wait for it in vain.
        """
        self._held.clear()
        self._begin()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, gradients are added up here and nothing is sent; `ready` may be called again.

        The next step outside adds its gradients and reduces the sum. ValueError inside of a step.
        """
        if self._ready:
            raise ValueError("a step has begun: finish() it first, or reset()")
        was, self._is_local = self._is_local, True
        try:
            yield
        finally:
            self._is_local = was

    def _given(
        self, name: Name, gradient: Any, here: Sequence[int], rank: int | None
    ) -> dict[int, Any]:
        """The gradients by the number of the rank here, as they should be."""
        parameter, what = self._weights.parameter(name), f"gradient {name!r}"
        if rank is not None:
            gradient = [gradient if each in here else None for each in self._all]
        rows = listed(self.comm, gradient, what, [self.comm.ranks[each] for each in here])
        alike([rows[each] for each in here], parameter.shape, parameter.dtype, what)
        return {each: rows[each] for each in here}

    def _here(self, name: Name, rank: int | None) -> Sequence[int]:
        """The numbers here of the ranks that are meant, none of which is ready yet."""
        self._weights.parameter(name)
        here: Sequence[int] = self._all
        if rank is not None:
            rank = as_rank(self.comm, rank, "rank")
            if rank not in self.comm.ranks:
                raise ValueError(f"rank={rank} is in another process: this is {self.comm!r}")
            here = [self.comm.ranks.index(rank)]
        if any((name, each) in self._ready for each in here):
            raise ValueError(f"gradient {name!r} was ready in this step: finish() ends it")
        return here

    def _note(self, name: Name, here: int) -> None:
        self._held.add((name, here))
        if not self._is_local:
            self._ready.add((name, here))
            self._missing[self._bucket_of[name]] -= 1

    def _launch(self) -> None:
        """Launch what is whole, in the order of the plan: a bucket waits for those before it, or
        ranks whose gradients come in another order would meet in different calls."""
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
