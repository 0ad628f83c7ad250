"""Cellar, abi. NumPy's stable sorts, in place of CuPy's module of Thrust.

NumPy orders NaNs and complex numbers as CuPy does: NaNs last, real parts first.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cudasync.softgpu.abi.cupy.device_memory import array_at, current_stream
from cudasync.softgpu.core.graphs.library_calls import enqueue_routine

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable

# The types that CuPy's own module can sort.
_SORTABLE: Final = "?bBhHiIlLqQefdFD"
_INDEX_BYTES: Final = 8
# THRUST_VERSION, major * 100000 + minor * 100, for programs that ask.
_VERSION: Final = 200800


def fill(module: ModuleType, table: FunctionTable) -> None:
    """Give the module the functions of CuPy's Thrust module."""
    machine = table.machine

    def sort(dtype: Any, data_start: int, _keys_start: int, shape: Sequence[int]) -> None:
        of = _sortable(dtype, "arrays", NotImplementedError)
        span = (data_start, prod(shape) * of.itemsize)

        def run() -> None:
            data = array_at(data_start, of, shape)
            data[...] = np.sort(data, axis=-1, kind="stable")

        stream = current_stream(machine)
        enqueue_routine(machine, stream, "thrust::sort", run, reads=[span], writes=[span])

    def lexsort(dtype: Any, idx_start: int, keys_start: int, k: int, n: int) -> None:
        of = _sortable(dtype, "keys", TypeError)

        def run() -> None:
            keys = array_at(keys_start, of, (k, n))
            array_at(idx_start, np.dtype(np.intp), (n,))[...] = np.lexsort(keys)

        enqueue_routine(
            machine,
            current_stream(machine),
            "thrust::lexsort",
            run,
            reads=[(keys_start, k * n * of.itemsize)],
            writes=[(idx_start, n * _INDEX_BYTES)],
        )

    def argsort(
        dtype: Any, idx_start: int, data_start: int, _keys_start: int, shape: Sequence[int]
    ) -> None:
        of = _sortable(dtype, "arrays", NotImplementedError)
        count = prod(shape)

        def run() -> None:
            data = array_at(data_start, of, shape)
            order = np.argsort(data, axis=-1, kind="stable")
            array_at(idx_start, np.dtype(np.intp), shape)[...] = order
            # As in Thrust, the data is sorted, too.
            data[...] = np.take_along_axis(data, order, axis=-1)

        enqueue_routine(
            machine,
            current_stream(machine),
            "thrust::argsort",
            run,
            reads=[(data_start, count * of.itemsize)],
            writes=[(idx_start, count * _INDEX_BYTES), (data_start, count * of.itemsize)],
        )

    vars(module).update(
        available=True,
        get_build_version=lambda: _VERSION,
        sort=sort,
        lexsort=lexsort,
        argsort=argsort,
    )


def _sortable(dtype: Any, what: str, error: type[Exception]) -> np.dtype[Any]:
    found: np.dtype[Any] = np.dtype(dtype)
    if found.char not in _SORTABLE:
        raise error(f"Sorting {what} with dtype '{dtype}' is not supported")
    return found
