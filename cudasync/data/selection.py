"""Floor 4. Verbs that choose the items, their number and their order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from cudasync.data import views
from cudasync.data.argument_checks import function, number
from cudasync.data.combination import Repeated
from cudasync.data.selection_cursors import Filtered, Shuffled, Sliced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudasync.data.cursors import Cursor
    from cudasync.data.pipeline import Key, Pipeline
    from cudasync.data.run_state import Opening


def take(self: Pipeline, count: int) -> Pipeline:
    """The first `count` items."""
    return _sliced(self, 0, 1, number(count, "count", 0))


def skip(self: Pipeline, count: int) -> Pipeline:
    """All but the first `count` items."""
    return _sliced(self, number(count, "count", 0), 1, None)


def shard(self: Pipeline, rank: int, size: int) -> Pipeline:
    """The items whose number is `rank` modulo `size`: a part for each of `size` processes."""
    rank, size = number(rank, "rank", 0), number(size, "size", 1)
    if rank >= size:
        raise ValueError(f"rank={rank} must be from 0 to size - 1 = {size - 1}")
    return _sliced(self, rank, size, None)


def _sliced(self: Pipeline, start: int, step: int, most: int | None) -> Pipeline:
    inner = self._view
    view = None
    if inner is not None:
        stop = 1 << 62 if most is None else start + most * step

        def view(key: Key) -> views.View:
            return views.Ranged(inner(key), start, stop, step)

    return self._then(
        ("slice", start, step, most),
        lambda source, key, opening: Sliced(source, start, step, most),
        view,
    )


def filter(self: Pipeline, fn: Callable[[Any], Any]) -> Pipeline:  # noqa: A001 - a verb of tf.data
    """The items for which `fn(item)` is true."""
    function(fn, "filter")
    return self._then(
        ("filter", fn), lambda source, key, opening: Filtered(source, fn, opening.meter("filter"))
    )


def repeat(self: Pipeline, count: int | None = None) -> Pipeline:
    """The whole pipeline `count` times, without end if None; each pass shuffles anew.

    An endless repetition ends if a pass draws nothing, as over an iterator that is used up. It
    raises `DataError` if a hundred passes in a row draw items and give none.
    """
    if count is not None:
        count = number(count, "count", 0)

    def opened(key: Key, opening: Opening) -> Cursor:
        part = opening.part()

        def passes() -> Iterator[Callable[[], Cursor]]:
            at = 0
            while count is None or at < count:
                yield partial(self._open, (*key, at), part.again())
                at += 1

        return Repeated(passes(), part, is_endless=count is None)

    return self._of(("repeat", count), opened)


def shuffle(self: Pipeline, seed: int, buffer: int | None = None) -> Pipeline:
    """The items in an order that `seed` and the epoch decide.

    If every sample has a number, and only slices, `zip` and `concat` are before, all samples are
    shuffled. Otherwise each item is drawn from a buffer of the next `buffer` ones; ValueError
    without `buffer`.
    """
    number(seed, "seed", 0)
    if buffer is not None:
        number(buffer, "buffer", 1)
    inner = self._view
    if inner is not None:
        return self._then(
            ("shuffle", seed),
            lambda source, key, opening: source,
            lambda key: views.Permuted(inner(key), (seed, *key)),
        )
    if buffer is None:
        raise ValueError(
            "a source without a length is shuffled in a buffer: give shuffle(seed, buffer=n)"
        )
    return self._then(
        ("shuffle", seed, buffer),
        lambda source, key, opening: Shuffled(source, (seed, *key), buffer),
    )
