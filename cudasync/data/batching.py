"""Floor 4. Samples into batches: one array for each leaf, with the samples along the first axis.

A batch stays a list of samples until its target is known, so a ring gathers straight into pinned
memory.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.data.cursors import Cursor
from cudasync.data.failures import DataError, Failed, is_failed
from cudasync.data.trees import columns, rebuilt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.data.meters import Meter


class Samples:
    """A batch that is not gathered yet: for each leaf, its values, and shape and dtype of its
    array."""

    def __init__(self, samples: Sequence[Any], pad: Any) -> None:
        """Raises ValueError if the samples do not fit together."""
        self.tree = samples[0]
        self.columns: list[list[Any]] = []
        self.specs: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
        self._pad = pad
        for at, column in enumerate(columns(samples)):
            arrays = [_array(each) for each in column]
            if any(each.dtype == object for each in arrays):
                # Numbers among objects stay what they are, too.
                arrays = [_kept(*each) for each in zip(column, arrays, strict=True)]
            dtypes = {each.dtype for each in arrays}
            kinds = {each.kind for each in dtypes}
            if len(kinds) > 1 and kinds & {"S", "U"}:
                raise ValueError(
                    f"leaf {at} is of {' and '.join(sorted(map(str, dtypes)))} in one batch, and "
                    f"text is no number: make them equal in map()"
                )
            dtype = np.result_type(*dtypes)
            shapes = {each.shape for each in arrays}
            if len(shapes) == 1:
                (shape,) = shapes
            elif pad is None or len({len(each) for each in shapes}) > 1:
                raise ValueError(
                    f"leaf {at} has shapes {sorted(shapes)} in one batch: make them equal in "
                    f"map(), or give batch(pad=value)"
                )
            else:
                shape = tuple(max(extents) for extents in zip(*shapes, strict=True))
            self.columns.append(arrays)
            self.specs.append(((len(arrays), *shape), dtype))

    def gather(self, targets: Sequence[Any]) -> None:
        """Write the batch to arrays of the shapes and dtypes of `specs`."""
        for column, target in zip(self.columns, targets, strict=True):
            for row, value in enumerate(column):
                if not value.shape:
                    target[row] = value[()]  # An object, and not an array around it.
                elif value.shape == target.shape[1:]:
                    target[row] = value
                else:
                    target[row] = self._pad
                    target[(row, *map(slice, value.shape))] = value

    def gathered(self) -> Any:
        """The batch in new arrays."""
        targets = [np.empty(shape, dtype) for shape, dtype in self.specs]
        self.gather(targets)
        return rebuilt(self.tree, targets)


def _array(value: Any) -> np.ndarray[Any, Any]:
    """The array of a leaf; of one object if the leaf is neither numbers nor text."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    is_list = isinstance(value, list)
    try:
        found = np.asarray(value)
    except Exception:
        if is_list:
            raise
        return _of_object(value)
    if found.dtype.kind in "SU" and found.tolist() != value:
        # Text of a fixed width has no zeros at its end, and makes text of numbers in a list.
        found = np.array(value, dtype=object)
    if found.dtype == object and not is_list:
        return _of_object(value)  # NumPy looks into an object that has a length.
    return found


def _kept(value: Any, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.astype(object) if array.shape else _of_object(value)


def _of_object(value: Any) -> np.ndarray[Any, Any]:
    found = np.empty((), object)
    found[()] = value
    return found


class Batched(Cursor):
    """Batches of `size` samples."""

    def __init__(self, source: Cursor, size: int, drop_last: bool, pad: Any, meter: Meter) -> None:
        super().__init__(source)
        self._source, self._size, self._drops, self._pad = source, size, drop_last, pad
        self.meter = meter
        self._given = 0
        self._is_over = False

    def take(self, count: int) -> list[Any]:
        return [
            each.gathered() if each.__class__ is Samples else each for each in self.samples(count)
        ]

    def samples(self, count: int) -> list[Any]:
        """As `take`, but the batches are not gathered yet."""
        found: list[Any] = []
        while len(found) < count and not self._is_over:
            samples = self._source.take(self._size)
            self._is_over = len(samples) < self._size or is_failed(samples)
            if is_failed(samples):
                found.append(samples[-1])
            elif samples and not (self._drops and self._is_over):
                found.append(self._made(samples))
        return found

    def _made(self, samples: list[Any]) -> Samples | Failed:
        try:
            batch = Samples(samples, self._pad)
        except Exception as error:
            self._is_over = True
            return Failed(DataError(self.meter.stage, self._given, error))
        self._given += len(samples)
        self.meter.worked(len(samples), 0.0)
        return batch

    def advance(self, count: int) -> int:
        wanted = count * self._size
        there = self._source.advance(wanted)
        self._given += there
        self._is_over = self._is_over or there < wanted
        return there // self._size if self._drops else -(-there // self._size)


class Bucketed(Batched):
    """Batches of samples whose lengths lie between the same two bounds."""

    def __init__(
        self,
        source: Cursor,
        length: Callable[[Any], int],
        bounds: Sequence[int],
        size: int,
        drop_last: bool,
        pad: Any,
        meter: Meter,
    ) -> None:
        super().__init__(source, size, drop_last, pad, meter)
        self._length, self._bounds = length, sorted(bounds)
        self._buckets: list[list[Any]] = [[] for _ in range(len(self._bounds) + 1)]
        self._seen = 0

    def samples(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count and not self._is_over:
            one = self._source.take(1)
            if not one or is_failed(one):
                self._is_over = True
                left = [] if one or self._drops else [each for each in self._buckets if each]
                self._left = [*one, *left]
                break
            try:
                bucket = self._buckets[bisect_right(self._bounds, self._length(one[0]))]
            except Exception as error:
                self._is_over = True
                found.append(self._source.failed(self.meter.stage, self._seen, error, one[0]))
                break
            self._seen += 1
            bucket.append(one[0])
            if len(bucket) == self._size:
                found.append(self._made(list(bucket)))
                bucket.clear()
        while self._is_over and len(found) < count and getattr(self, "_left", None):
            last = self._left.pop(0)
            found.append(last if last.__class__ is Failed else self._made(last))
        return found

    def advance(self, count: int) -> int:
        return Cursor.advance(self, count)
