"""Floor 4. Pipelines: what is to be done, as an immutable chain of stages; iterating runs it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from cudasync.data import selecting, working
from cudasync.data.cursors import Numbered
from cudasync.data.given import number
from cudasync.data.meters import Meter, PipelineStats, summed
from cudasync.data.opening import Opening
from cudasync.data.running import Run
from cudasync.data.tuning import chosen

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.data import views
    from cudasync.data.cursors import Cursor

# The epoch, and behind it the number of the pass for each `repeat` that a stage stands before.
Key = tuple[int, ...]


class Pipeline:
    """Samples, and what is done to them on their way. Each verb gives a new pipeline.

    Iterating it is an epoch; the next iteration is the next one, which shuffles anew. Samples are
    trees: dicts, tuples and named tuples, whose leaves are arrays or anything else. The sequence
    depends on the data, the seeds and the epoch alone, whatever the number of workers, except
    behind `map(ordered=False)`.

    An exception of a stage is raised by the loop as `DataError`, behind the items before it, and
    ends the epoch.
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
        # For each stage its verb, and what it was given.
        self._made = made
        self._epoch = self._delivered = 0
        # How many items the next iteration leaves out.
        self._resumes_at = 0
        self._chosen: dict[str, int] = {}
        self._opening, self._loop = Opening(self._chosen), Meter("loop")
        self._run: Run | None = None

    take = selecting.take
    skip = selecting.skip
    shard = selecting.shard
    filter = selecting.filter
    repeat = selecting.repeat
    shuffle = selecting.shuffle
    map = working.map
    cache = working.cache
    batch = working.batch
    bucket_by_length = working.bucket_by_length
    prefetch = working.prefetch

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
        """This and one more stage, which draws from it."""

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
        """This and one more stage, which opens it as it likes."""
        is_ordered = is_ordered and self._is_ordered
        return Pipeline(opened, view, is_ordered=is_ordered, made=(*self._made, made))

    def __iter__(self) -> Run:
        """Begin the epoch that is next: after `restore` its rest.

        One that was left, by `break` or an error, is begun again.
        """
        if self._run is not None:
            self._run.close()
        run = Run(self)
        self._run_is(run)
        return run

    def _run_is(self, run: Run) -> None:
        self._run = weakref.proxy(run, lambda _: setattr(self, "_run", None))

    def state(self) -> dict[str, int]:
        """Where the loop is, as numbers that JSON takes. ValueError behind `ordered=False`."""
        if not self._is_ordered:
            raise ValueError("map(ordered=False) gives no order that could be taken up again")
        return {"epoch": self._epoch, "delivered": self._delivered}

    def restore(self, state: dict[str, int]) -> None:
        """The next iteration gives the rest of the epoch that `state` was taken in.

        Also in another process, from a pipeline that was made the same way. What stands behind a
        filter or a bucket is computed again up to there; else positions are set. TypeError and
        ValueError for what `state` did not return.
        """
        if not (isinstance(state, dict) and state.keys() >= {"epoch", "delivered"}):
            raise TypeError(f"restore takes what state() returned, not {state!r}")
        epoch, delivered = (number(state[each], each, 0) for each in ("epoch", "delivered"))
        self.close()
        self._epoch, self._delivered = epoch, delivered
        self._resumes_at = self._delivered

    def stats(self) -> PipelineStats:
        """Counts of the epoch that runs, or ran last."""
        return summed(self._opening.meters(), self._loop)

    def tune(self) -> dict[str, int]:
        """Choose how many workers each `map` has, from the counts of the epoch that runs, or ran.

        As few as keep up with the loop, as many as the processors allow; returned by stage, and
        used from the next iteration on, in this pipeline alone. The sequence stays what it is.
        ValueError before anything was counted.
        """
        loop = self._loop
        if not loop.items:
            raise ValueError("nothing was counted yet: iterate over some items first")
        stages = {each.stage: each for each in self.stats().stages}
        maps = {name: stages[name] for name in stages if name.partition(" ")[0] == "map"}
        found = chosen(maps, (loop.busy_s - loop.waited_s) / loop.items, loop.items)
        self._chosen.update(found)
        return found

    def close(self) -> None:
        """End the epoch that runs, its threads and pinned memory. Closing twice is harmless."""
        if self._run is not None:
            self._run.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
