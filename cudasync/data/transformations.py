"""Floor 4. Verbs that work on the items: map, batch, buckets, cache, prefetch."""

from __future__ import annotations

import os
from _thread import allocate_lock
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cudasync.data.argument_checks import function, number
from cudasync.data.batching import Batched, Bucketed
from cudasync.data.caching import fingerprint
from cudasync.data.caching.cached import Cached
from cudasync.data.caching.in_folder import InFolder
from cudasync.data.caching.store import InMemory
from cudasync.data.failures import raise_unless_policy
from cudasync.data.map import Mapped
from cudasync.data.processes.worker_pool import pickled
from cudasync.data.ring import Prefetched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.data.caching.store import Store
    from cudasync.data.cursors import Cursor
    from cudasync.data.pipeline import Key, Pipeline
    from cudasync.data.run_state import Opening


def map(  # noqa: A001 - a verb of tf.data
    self: Pipeline,
    fn: Callable[[Any], Any],
    *,
    workers: int | Literal["auto"] = 1,
    ordered: bool = True,
    processes: bool = False,
    on_error: str = "raise",
) -> Pipeline:
    """`fn(item)` for each item, by `workers` threads ahead of their use.

    `fn` is called by several threads at once, and ahead of the loop: what it returns must be new
    each time, or unchanged from then on.

    The threads also fetch the samples of a map-style source. `"auto"` begins with one worker, and
    adds more while samples come faster by it; the next epoch begins with the number found. With
    `ordered=False` items come as they are ready. `on_error="skip"` leaves out an item whose `fn`,
    or fetching, raises; `stats().skipped` counts such items.

    With `processes=True` workers are processes, for functions that hold the GIL. They start anew in
    each epoch, by "spawn". So `fn` must be picklable (else TypeError), and the program must stand
    below `if __name__ == "__main__":`. Arrays come back in shared memory; other leaves are pickled.
    A dataset that pickles to 16 MiB or more stays here, and its samples are sent. The `DataError`
    names a process that dies, whatever `on_error` is.
    """
    raise_unless_policy(on_error)
    function(fn, "map")
    if not isinstance(workers, str):
        workers = number(workers, "workers", 1)
    elif workers != "auto":
        raise ValueError(f"workers must be a number or 'auto', not {workers!r}")
    sent = pickled(fn) if processes else None

    def opened(source: Cursor, key: Key, opening: Opening) -> Cursor:
        meter = opening.meter("map")
        begin = opening.workers(meter.stage) or (1 if workers == "auto" else workers)
        chose = partial(opening.chose, meter.stage) if workers == "auto" else None
        how: Any = {"ordered": ordered, "on_error": on_error, "sent": sent, "chose": chose}
        return Mapped(source, fn, meter, workers=begin, **how)

    return self._then(("map", fn, on_error), opened, is_ordered=ordered)


def cache(self: Pipeline, where: str | os.PathLike[str], *, key: str = "") -> Pipeline:
    """Keep the items of the first pass, in memory for `"memory"`, else in the folder `where`.

    Later passes, of this and of all pipelines made from it, take the items from there; with a
    folder also later processes do. Stages before the cache always run as in the first epoch:
    shuffle behind it. Arrays are read-only, in all passes. A pass that ends early, even by a kill,
    leaves its items, and the next pass goes on there (not behind `map(ordered=False)`).

    ValueError if another pipeline made the folder: with other verbs, functions or data. Of a
    function count its code, defaults, closure, and the globals and functions of the program that it
    names; of an object, what pickle would save. Data beyond 100,000 items or 256 MiB are sampled.
    ValueError also for whatever has no fingerprint, such as a lock or a generator. `key` vouches
    for that, and for all else that cannot be seen: change it whenever such a fact changes.

    Only the user's own folder is used, as unpickling runs code: PermissionError if it belongs to
    another user, or if others may write to it. A damaged item is a `DataError`, and so is one that
    cannot be written, as on a full disk.
    """
    if not isinstance(where, (str, os.PathLike)):
        raise TypeError(f"cache must be 'memory' or a folder, not {where!r}")
    if os.fspath(where) == "memory":
        store: Store = InMemory()
    else:
        made = (*self._made, ("cache", key))
        store = InFolder(Path(where), fingerprint.lines(made, is_vouched_for=bool(key)))
    maker = None if self._is_ordered else allocate_lock()

    def opened(key: Key, opening: Opening) -> Cursor:
        part = opening.part()
        # All passes are of epoch 0, so that a run that begins with a later epoch keeps the same
        # items.
        return Cached(store, lambda: self._open((0,), part), opening.meter("cache"), maker)

    return self._of(("cache", key), opened)


def batch(self: Pipeline, size: int, *, drop_last: bool = False, pad: Any = None) -> Pipeline:
    """Batches of `size` samples: each leaf an array with one more axis in front.

    Leaves that are neither numbers nor text, such as paths, None and other objects, are kept as
    they are, in an array of objects; so is text that ends with a zero byte. `DataError` if a leaf
    is text in one sample and a number in another.

    With `pad`, leaves of different shapes are filled up with that value to the largest extents.
    """
    size = number(size, "size", 1)
    return self._then(
        ("batch", size, drop_last, pad),
        lambda source, key, opening: Batched(source, size, drop_last, pad, opening.meter("batch")),
    )


def bucket_by_length(
    self: Pipeline,
    length: Callable[[Any], int],
    bounds: Sequence[int],
    size: int,
    *,
    drop_last: bool = False,
    pad: Any = 0,
) -> Pipeline:
    """Batches of `size` samples of similar length, with `pad` behind the shorter ones.

    `length(sample)` decides the bucket: below the first of `bounds`, between two of them, or from
    the last on.
    """
    function(length, "bucket_by_length")
    size = number(size, "size", 1)

    def opened(source: Cursor, key: Key, opening: Opening) -> Cursor:
        meter = opening.meter("bucket_by_length")
        return Bucketed(source, length, bounds, size, drop_last, pad, meter)

    return self._then(
        ("bucket_by_length", length, tuple(bounds), size, drop_last, pad),
        opened,
    )


def prefetch(self: Pipeline, depth: int, *, device: int | None = None) -> Pipeline:
    """Make `depth` items ready ahead of their use, on a thread of their own.

    With `device`, an ordinal, leaves become device arrays: they are gathered into a ring of `depth`
    pinned buffers and copied on the copy stream. Only readers of the arrays wait for the copies.
    """
    depth = number(depth, "depth", 1)
    return self._then(
        ("prefetch", device),
        lambda source, key, opening: Prefetched(source, depth, device, opening.meter("prefetch")),
    )
