"""Floor 4. Packs values into a few bytes and the arrays beside them, which pickle does not copy.

Protocol 5 of pickle gives the memory of large arrays "out of band" (PEP 574). Values for another
process, or for a cache, are packed like this.
"""

from __future__ import annotations

import io
import pickle
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

# Smaller arrays are copied into the bytes: a separate buffer would cost more.
LEAST_BYTES = 1 << 10
ALIGNED = 64


def packed(value: Any) -> tuple[bytes, list[memoryview]]:
    """The bytes, and the memory of arrays of at least `LEAST_BYTES`, as flat bytes.

    Raises whatever pickle raises for a value that cannot be pickled.
    """
    file, buffers = io.BytesIO(), []

    def kept_inside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < LEAST_BYTES:
            return True
        buffers.append(raw)
        return False

    _Pickler(file, 5, buffer_callback=kept_inside).dump(value)
    return file.getvalue(), buffers


def unpacked(head: bytes, buffers: Iterable[Any]) -> Any:
    """The value; its arrays lie upon `buffers`, and are read-only where these are."""
    return pickle.loads(head, buffers=buffers)


def places(sizes: Iterable[int]) -> tuple[list[int], int]:
    """The starts of consecutive buffers of these sizes, and the end of the last."""
    starts, end = [], 0
    for size in sizes:
        starts.append(end)
        end += -(-size // ALIGNED) * ALIGNED
    return starts, end


class _Pickler(pickle.Pickler):
    """Also gives the memory of arrays that pickle would copy: with gaps, mapped, or of PyTorch."""

    def reducer_override(self, value: Any) -> Any:
        kind = value.__class__
        if kind is np.ndarray or kind is np.memmap:
            if value.dtype.hasobject:
                return NotImplemented
            if kind is np.memmap or not (value.flags.c_contiguous or value.flags.f_contiguous):
                return np.array(value, order="C", subok=False).__reduce_ex__(5)
        elif kind.__module__ == "torch" and kind.__name__ == "Tensor":
            torch = sys.modules["torch"]
            try:
                return torch.from_numpy, (np.asarray(value.numpy(), order="C"),)
            except (RuntimeError, TypeError):
                # A tensor on a device, with a gradient, or of a dtype that NumPy lacks: PyTorch's
                # own way.
                return NotImplemented
        return NotImplemented
