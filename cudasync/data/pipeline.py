"""Floor 4. Pipelines: work on samples as an immutable chain of stages; iterating runs it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from cudasync.data import selection, transformations
from cudasync.data.argument_checks import number
from cudasync.data.cursors import Numbered
from cudasync.data.iteration import Position, Run, Work
from cudasync.data.meters import Meter, PipelineStats, summed
from cudasync.data.run_state import Opening
from cudasync.data.tuning import chosen
from cudasync.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.data import views
    from cudasync.data.cursors import Cursor

# The epoch, followed by the pass number of each `repeat` behind the stage.
Key = tuple[int, ...]


class Pipeline:
    """Samples, and the work on them. Each verb gives a new pipeline.

    An iteration is an epoch; the next iteration is the next epoch, which shuffles anew. Samples are
    trees: dicts, tuples and named tuples, whose leaves are arrays or anything else. The sequence
    depends on the data, the seeds and the epoch alone, whatever the number of workers, except
    behind `map(ordered=False)`.

    Any number of iterations may be under way at once, in any threads, each with a position of its
    own. An iteration is of the epoch behind the last one that came to its end, so the iterations of
    `zip(p, p)` are of the same epoch.

    The loop raises an exception of a stage as `DataError`, behind the items before it. The
    exception ends the epoch.
    """

    def __init__(
        self,
        opened: Callable[[Key, Opening], Cursor],
        view: Callable[[Key], views.View] | None = None,
        *,
        is_ordered: bool = True,
        made: tuple[Any, ...],
    ) -> None:
        self._opened, self._view, self._is_ordered = opened, view, is_ordered
        # The verb of each stage, and its arguments.
        self._made = made
        # Guards the two places where iterations begin and end.
        self._lock = Lock()
        # Where the next iteration begins.
        self._begin = Position(0, 0)
        # Where the iteration was that ended or was left last, or the restored position.
        self._left_at = self._begin
        self._runs: list[weakref.ref[Run]] = []
        # The work that is not closed yet, also of iterators that were dropped.
        self._works: set[Work] = set()
        self._chosen: dict[str, int] = {}
        # The meters of the iteration that was begun last.
        self._opening, self._loop = Opening(self._chosen), Meter("loop")

    take = selection.take
    skip = selection.skip
    shard = selection.shard
    filter = selection.filter
    repeat = selection.repeat
    shuffle = selection.shuffle
    map = transformations.map
    cache = transformations.cache
    batch = transformations.batch
    bucket_by_length = transformations.bucket_by_length
    prefetch = transformations.prefetch

    def _open(self, key: Key, opening: Opening) -> Cursor:
        return self._opened(key, opening)

    def _then(
        self,
        made: tuple[Any, ...],
        opened: Callable[[Cursor, Key, Opening], Cursor],
        view: Callable[[Key], views.View] | None = None,
        *,
        is_ordered: bool = True,
    ) -> Pipeline:
        """This pipeline and one more stage, which draws from it."""

        def open_both(key: Key, opening: Opening) -> Cursor:
            if view is not None:
                return Numbered(view(key), opening.meter("source"), "raise")
            return opened(self._open(key, opening), key, opening)

        return self._of(made, open_both, view, is_ordered=is_ordered)

    def _of(
        self,
        made: tuple[Any, ...],
        opened: Callable[[Key, Opening], Cursor],
        view: Callable[[Key], views.View] | None = None,
        *,
        is_ordered: bool = True,
    ) -> Pipeline:
        """This pipeline and one more stage, which opens it by itself."""
        is_ordered = is_ordered and self._is_ordered
        return Pipeline(opened, view, is_ordered=is_ordered, made=(*self._made, made))

    def __iter__(self) -> Run:
        """Begin the next epoch, or after `restore` the rest of it.

        An epoch that was left, by `break` or an error, begins again. The iterator has a `state()`,
        `stats()` and `close()` of its own. ValueError if the epoch has fewer items than the
        restored state says; DataError if one of the items to skip fails.
        """
        with self._lock:
            begin, self._begin = self._begin, Position(self._begin.epoch, 0)
        try:
            run = Run(self, begin)
        except BaseException:
            with self._lock:
                self._begin = max(self._begin, begin)
            raise
        with self._lock:
            self._runs = [*(each for each in self._runs if each() is not None), weakref.ref(run)]
            self._opening, self._loop = run._opening, run._loop
        return run

    def _ended(self, behind: Position) -> None:
        """Note that an iteration came to its end."""
        with self._lock:
            self._left_at = behind
            self._begin = max(self._begin, behind)

    def state(self) -> dict[str, int]:
        """The position of the iteration under way, as numbers that JSON takes.

        If none is under way, the position at which the last one was left. ValueError if several are
        under way, which have each a `state()` of their own, and behind `ordered=False`.
        """
        self._raise_unless_ordered()
        with self._lock:
            found = self._under_way()
            left_at = self._left_at
        if len(found) > 1:
            raise ValueError(
                f"{len(found)} iterations of this pipeline are under way: ask the iterator, as in "
                f"it = iter(pipeline), it.state(), and close or drop those that were left"
            )
        return found[0].state() if found else left_at._asdict()

    def _under_way(self) -> list[Run]:
        return [run for each in self._runs if (run := each()) is not None and run.is_under_way]

    def _raise_unless_ordered(self) -> None:
        if not self._is_ordered:
            raise ValueError(
                "state() needs an order, and map(ordered=False) gives none: leave ordered out"
            )

    def restore(self, state: dict[str, int]) -> None:
        """The next iteration gives the rest of the epoch in which `state` was taken.

        Iterations under way are closed. This also works in another process, with a pipeline that
        was made the same way. Stages behind a filter, a bucket or a shuffle in a buffer compute
        their items again up to there; other stages set their positions.

        TypeError and ValueError for anything that `state` did not return. The next iteration raises
        ValueError if its epoch has fewer items than were delivered.
        """
        self._raise_unless_ordered()
        if not (isinstance(state, dict) and state.keys() == {"epoch", "delivered"}):
            raise TypeError(f"restore takes the result of state(), not {state!r}")
        epoch, delivered = (number(state[each], each, 0) for each in ("epoch", "delivered"))
        self.close()
        with self._lock:
            self._begin = self._left_at = Position(epoch, delivered)

    def stats(self) -> PipelineStats:
        """The counts of the iteration that was begun last."""
        return summed(self._opening.meters(), self._loop)

    def tune(self) -> dict[str, int]:
        """Choose the number of workers of each `map`, from the counts of the iteration begun last.

        As few as keep up with the loop, at most as many as the processors allow. Returned by stage,
        and used from the next iteration on, in this pipeline alone. The sequence does not change.
        ValueError before anything was counted.
        """
        loop = self._loop
        if not loop.items:
            raise ValueError("no item was delivered yet: iterate over some items first")
        stages = {each.stage: each for each in self.stats().stages}
        maps = {name: stages[name] for name in stages if name.partition(" ")[0] == "map"}
        found = chosen(maps, (loop.busy_s - loop.waited_s) / loop.items, loop.items)
        self._chosen.update(found)
        return found

    def close(self) -> None:
        """End all iterations, their threads, processes and pinned memory.

        It waits for their end, also for those that were left by `break`. A loop whose iteration is
        closed before its end raises ClosedError. Closing twice is harmless.
        """
        for run in self._under_way():
            run.close()
        for each in tuple(self._works):
            each.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
