"""Floor 4. Pipelines: work on samples as an immutable chain of stages; iterating runs it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from cudasync.data import selection, transformations
from cudasync.data.argument_checks import number
from cudasync.data.cursors import Numbered
from cudasync.data.iteration import Run
from cudasync.data.meters import Meter, PipelineStats, summed
from cudasync.data.run_state import Opening
from cudasync.data.tuning import chosen

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
        self._epoch = self._delivered = 0
        # The number of items that the next iteration skips.
        self._resumes_at = 0
        self._chosen: dict[str, int] = {}
        self._opening, self._loop = Opening(self._chosen), Meter("loop")
        self._run: Run | None = None

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

        An epoch that was left, by `break` or an error, begins again.
        """
        if self._run is not None:
            self._run.close()
        run = Run(self)
        self._run_is(run)
        return run

    def _run_is(self, run: Run) -> None:
        self._run = weakref.proxy(run, lambda _: setattr(self, "_run", None))

    def state(self) -> dict[str, int]:
        """The position of the loop, as numbers that JSON takes. ValueError behind
        `ordered=False`."""
        if not self._is_ordered:
            raise ValueError(
                "state() needs an order, and map(ordered=False) gives none: leave ordered out"
            )
        return {"epoch": self._epoch, "delivered": self._delivered}

    def restore(self, state: dict[str, int]) -> None:
        """The next iteration gives the rest of the epoch in which `state` was taken.

        This also works in another process, with a pipeline that was made the same way. Stages
        behind a filter or a bucket compute their items again up to there; other stages set their
        positions. TypeError and ValueError for anything that `state` did not return.
        """
        if not (isinstance(state, dict) and state.keys() >= {"epoch", "delivered"}):
            raise TypeError(f"restore takes the result of state(), not {state!r}")
        epoch, delivered = (number(state[each], each, 0) for each in ("epoch", "delivered"))
        self.close()
        self._epoch, self._delivered = epoch, delivered
        self._resumes_at = self._delivered

    def stats(self) -> PipelineStats:
        """The counts of the current or last epoch."""
        return summed(self._opening.meters(), self._loop)

    def tune(self) -> dict[str, int]:
        """Choose the number of workers of each `map`, from the counts of the current or last epoch.

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
        """End the current epoch, its threads and pinned memory. Closing twice is harmless."""
        if self._run is not None:
            self._run.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
