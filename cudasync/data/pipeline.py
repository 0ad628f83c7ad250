"""Floor 4. Pipelines: what is to be done, as an immutable chain of stages; iterating runs it."""

from __future__ import annotations

import glob
import os
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from cudasync.data import views
from cudasync.data.batching import Batched, Bucketed
from cudasync.data.cursors import (
    Chained,
    Cursor,
    Filtered,
    Interleaved,
    Iterated,
    Numbered,
    Parallel,
    Shuffled,
    Sliced,
)
from cudasync.data.failures import Failed, raise_unless_policy
from cudasync.data.mapping import Mapped
from cudasync.data.meters import Meter, PipelineStats, summed
from cudasync.data.ring import Prefetched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

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
        opened: Any,
        view: Callable[[Key], views.View] | None = None,
        *,
        is_ordered: bool = True,
    ) -> None:
        self._opened, self._view, self._is_ordered = opened, view, is_ordered
        self._epoch = self._delivered = 0
        self._meters: list[Meter] = []
        self._loop = Meter("loop")
        self._run: Run | None = None

    def _open(self, key: Key, meters: list[Meter]) -> Cursor:
        cursor: Cursor = self._opened(key, meters)
        return cursor

    def _then(
        self,
        opened: Callable[[Cursor, Key, list[Meter]], Cursor],
        view: Callable[[Key], views.View] | None = None,
        *,
        is_ordered: bool = True,
    ) -> Pipeline:
        def open_both(key: Key, meters: list[Meter]) -> Cursor:
            if view is not None:
                return _numbered(view(key), meters)
            return opened(self._open(key, meters), key, meters)

        return Pipeline(open_both, view, is_ordered=self._is_ordered and is_ordered)

    def _sliced(self, start: int, step: int, most: int | None) -> Pipeline:
        inner = self._view
        view = None
        if inner is not None:
            stop = 1 << 62 if most is None else start + most * step

            def view(key: Key) -> views.View:
                return views.Ranged(inner(key), start, stop, step)

        return self._then(lambda source, key, meters: Sliced(source, start, step, most), view)

    def take(self, count: int) -> Pipeline:
        """The first `count` items."""
        return self._sliced(0, 1, _natural(count, "count"))

    def skip(self, count: int) -> Pipeline:
        """All but the first `count` items."""
        return self._sliced(_natural(count, "count"), 1, None)

    def shard(self, rank: int, size: int) -> Pipeline:
        """The items whose number is `rank` modulo `size`: a part for each of `size` processes."""
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} of {size}: it is at least 0 and below the size")
        return self._sliced(rank, size, None)

    def filter(self, fn: Callable[[Any], Any]) -> Pipeline:
        """The items of which `fn(item)` is true."""
        return self._then(
            lambda source, key, meters: Filtered(source, fn, _meter(meters, "filter"))
        )

    def repeat(self, count: int | None = None) -> Pipeline:
        """All of it `count` times, without end if None; each time shuffles anew."""

        def opened(key: Key, meters: list[Meter]) -> Cursor:
            def passes() -> Iterator[Callable[[], Cursor]]:
                at = 0
                while count is None or at < count:
                    yield partial(self._open, (*key, at), meters if at == 0 else [])
                    at += 1

            return Chained(passes(), is_endless=count is None)

        return Pipeline(opened, is_ordered=self._is_ordered)

    def shuffle(self, seed: int, buffer: int | None = None) -> Pipeline:
        """In an order that `seed` and the epoch decide.

        Where every sample has a number, and no stage but slices, `zip` and `concat` is before, all
        are shuffled. Else each item is drawn from a buffer of the next `buffer` ones; ValueError
        without one.
        """
        inner = self._view
        if inner is not None:
            return self._then(
                lambda source, key, meters: source,
                lambda key: views.Permuted(inner(key), (seed, *key)),
            )
        if buffer is None or buffer < 1:
            raise ValueError("what has no length is shuffled in a buffer: shuffle(seed, buffer=n)")
        return self._then(lambda source, key, meters: Shuffled(source, (seed, *key), buffer))

    def map(
        self,
        fn: Callable[[Any], Any],
        *,
        workers: int = 1,
        ordered: bool = True,
        on_error: str = "raise",
    ) -> Pipeline:
        """`fn(item)` for each item, by `workers` threads ahead of their use.

        Threads fetch the samples of a map-style source, too. With `ordered=False` items come as
        they are ready. `on_error="skip"` leaves out an item whose `fn`, or fetching, raises;
        `stats().skipped` counts them.
        """
        raise_unless_policy(on_error)
        if workers < 1:
            raise ValueError(f"{workers} workers: at least 1")

        def opened(source: Cursor, key: Key, meters: list[Meter]) -> Cursor:
            meter = _meter(meters, "map", workers)
            return Mapped(source, fn, meter, workers=workers, ordered=ordered, on_error=on_error)

        return self._then(opened, is_ordered=ordered)

    def batch(self, size: int, *, drop_last: bool = False, pad: Any = None) -> Pipeline:
        """Batches of `size` samples: each leaf an array with one more axis in front.

        With `pad`, leaves of several shapes are filled up with that value to the largest extents.
        """
        if size < 1:
            raise ValueError(f"a batch of {size}")
        return self._then(
            lambda source, key, meters: Batched(
                source, size, drop_last, pad, _meter(meters, "batch")
            )
        )

    def bucket_by_length(
        self,
        length: Callable[[Any], int],
        bounds: Sequence[int],
        size: int,
        *,
        drop_last: bool = False,
        pad: Any = 0,
    ) -> Pipeline:
        """Batches of `size` samples of like length, `pad` behind the shorter ones.

        `length(sample)` decides the bucket: below the first of `bounds`, between two of them, or
        from the last on.
        """
        return self._then(
            lambda source, key, meters: Bucketed(
                source, length, bounds, size, drop_last, pad, _meter(meters, "bucket_by_length")
            )
        )

    def prefetch(self, depth: int, *, device: int | None = None) -> Pipeline:
        """Make `depth` items ready ahead of their use, on a thread of their own.

        With `device`, an ordinal, leaves become device arrays: gathered into a ring of `depth`
        pinned buffers and copied on the copy stream. Nothing waits for the copies but what reads
        the arrays.
        """
        if depth < 1:
            raise ValueError(f"prefetch({depth}): at least 1")
        return self._then(
            lambda source, key, meters: Prefetched(
                source, depth, device, _meter(meters, "prefetch")
            )
        )

    def __iter__(self) -> Run:
        """Begin the epoch that is next: after `restore`, the rest of the one that was left."""
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
        filter or a bucket is computed again up to there; else positions are set.
        """
        self.close()
        self._epoch, self._delivered = state["epoch"], state["delivered"]

    def stats(self) -> PipelineStats:
        """Counts of the epoch that runs, or ran last."""
        return summed(self._meters, self._loop)

    def close(self) -> None:
        """End the epoch that runs, its threads and pinned memory. Closing twice is harmless."""
        if self._run is not None:
            self._run.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Run:
    """One pass of the consuming loop over a pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        pipeline._meters, pipeline._loop = [], Meter("loop")
        self._cursor: Cursor | None = pipeline._open((pipeline._epoch,), pipeline._meters)
        if pipeline._delivered:
            self._cursor.advance(pipeline._delivered)

    def __iter__(self) -> Run:
        return self

    def __next__(self) -> Any:
        if self._cursor is None:
            raise StopIteration
        pipeline = self._pipeline
        began = time.perf_counter()
        found = self._cursor.take(1)
        seconds = time.perf_counter() - began
        if not found:
            self.close()
            pipeline._epoch, pipeline._delivered = pipeline._epoch + 1, 0
            raise StopIteration
        (item,) = found
        if item.__class__ is Failed:
            self.close()
            raise item.error
        pipeline._loop.items += 1
        pipeline._loop.waited_s += seconds
        last = pipeline._meters[-1] if pipeline._meters else pipeline._loop
        pipeline._loop.waits = last.waits
        pipeline._delivered += 1
        return item

    def close(self) -> None:
        """End what is under way, and wait for it."""
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            cursor.stop()
            cursor.close()

    def __del__(self) -> None:
        # Nothing is waited for in a finaliser: threads end with the op that they are in.
        if (cursor := getattr(self, "_cursor", None)) is not None:
            cursor.stop()


def _natural(count: int, word: str) -> int:
    if count < 0:
        raise ValueError(f"{word} is {count}: at least 0")
    return count


def _meter(meters: list[Meter], verb: str, workers: int = 1) -> Meter:
    """A meter in the list, named for the verb, and numbered from the second one on."""
    same = sum(each.stage.partition(" ")[0] == verb for each in meters)
    meters.append(Meter(f"{verb} {same + 1}" if same else verb, workers))
    return meters[-1]


def _numbered(view: views.View, meters: list[Meter], on_error: str = "raise") -> Cursor:
    return Numbered(view, _meter(meters, "source"), on_error)


def source(data: Any) -> Pipeline:
    """A pipeline of the samples of `data`: the door of input pipelines.

    `data` has `__len__` and `__getitem__` (a list, a NumPy or memory-mapped array, a PyTorch
    `Dataset`, a Hugging Face dataset), or is an iterable, or a function that gives a new iterable
    for each epoch, as a generator function does. An iterator, which gives its items once, is an
    epoch once. With `prefetch(n)` behind it, a generator runs on a thread of its own.
    """
    if isinstance(data, Pipeline):
        return data
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, dict):
        return Pipeline(lambda key, meters: _numbered(data, meters), lambda key: data)
    if not (hasattr(data, "__iter__") or callable(data)):
        raise TypeError(
            f"{type(data).__name__} is no source: give what has __len__ and __getitem__, "
            "an iterable, or a function that returns one"
        )
    return Pipeline(lambda key, meters: Iterated(data, _meter(meters, "source")))


def files(pattern: str) -> Pipeline:
    """The paths that match a pattern (`**` for any folders), sorted. ValueError if none does."""
    found = sorted(glob.glob(os.fspath(pattern), recursive=True))
    if not found:
        raise ValueError(f"no file matches {pattern!r}")
    return source(found)


def concat(*pipelines: Any) -> Pipeline:
    """The items of one after the other."""
    parts = [source(each) for each in pipelines]
    inner = [each._view for each in parts]

    def opened(key: Key, meters: list[Meter]) -> Cursor:
        if (joined := _views(inner, key)) is not None:
            return _numbered(views.Joined(joined), meters)
        return Chained([partial(each._open, key, meters) for each in parts])

    view = (lambda key: views.Joined(_views(inner, key) or ())) if all(inner) else None
    return Pipeline(opened, view, is_ordered=all(each._is_ordered for each in parts))


def zip(*pipelines: Any) -> Pipeline:  # noqa: A001 - the verb of tf.data, as an attribute of `data`
    """Tuples of one item of each, until one is over."""
    parts = [source(each) for each in pipelines]
    inner = [each._view for each in parts]

    def opened(key: Key, meters: list[Meter]) -> Cursor:
        if (joined := _views(inner, key)) is not None:
            return _numbered(views.Zipped(joined), meters)
        return Parallel([each._open(key, meters) for each in parts])

    view = (lambda key: views.Zipped(_views(inner, key) or ())) if all(inner) else None
    return Pipeline(opened, view, is_ordered=all(each._is_ordered for each in parts))


def interleave(*pipelines: Any, block: int = 1) -> Pipeline:
    """`block` items of each in turn, until all are over."""
    if block < 1:
        raise ValueError(f"a block of {block}")
    parts = [source(each) for each in pipelines]
    return Pipeline(
        lambda key, meters: Interleaved([each._open(key, meters) for each in parts], block),
        is_ordered=all(each._is_ordered for each in parts),
    )


def _views(inner: Iterable[Any], key: Key) -> list[views.View] | None:
    found = [each(key) if each is not None else None for each in inner]
    return None if None in found else found  # type: ignore[return-value]
