"""Floor 4, advanced indexing. Taking, putting and searching, on a device or the CPU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.advanced_indexing import kernel
from cudasync.array.dtypes.supported import INT64
from cudasync.array.elementwise.layouts import contiguous, raise_if_over
from cudasync.array.elementwise.results import new_result
from cudasync.array.host.memory import CPU
from cudasync.array.memory.limits import check_size
from cudasync.array.steps.compilation import kernel_of
from cudasync.array.steps.on_host import computed
from cudasync.array.steps.step import Step
from cudasync.array.steps.step_cache import Known

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudasync.array.dtypes.supported import DType

_BLOCK = 256
_known: Known[Step] = Known()


def _run(
    text: str,
    name: str,
    operands: tuple[Any, ...],
    dtype: DType,
    shape: tuple[int, ...],
    numbers: tuple[int, ...],
    on_host: Callable[..., None],
    frame: FrameType,
    threads: int,
) -> Any:
    """A new array of `dtype` and `shape`: one launch, or one host op."""
    model = operands[0]
    result = contiguous(model.__cudasync_result__, dtype, shape, model.layout.device)
    if result.device is CPU:
        return computed(name, operands, result, on_host)
    raise_if_over(*operands)
    check_size(shape, result.nbytes, result.device)
    made = new_result(result)
    if result.size:
        packed = [(each, "Q" if each >= 0 else "q") for each in (threads, *numbers)]

        def step() -> Step:
            return Step(
                name,
                result.device,
                kernel_of(text, name, result.device),
                grid=(-(-threads // _BLOCK),),
                block=(_BLOCK,),
                first=(0,) * (len(operands) + 1),
                numbers=packed,
            )

        contiguous_operands = tuple(e if e.is_contiguous else e.copy() for e in operands)
        found = _known.get((text, threads, numbers), result.device, step)
        found(contiguous_operands, made, frame, is_new=True)
    return made


def taken(x: Any, indices: Any, axis: int, frame: FrameType) -> Any:
    """Elements of `x` at `indices`, int64 of one dimension, along an axis of at least one."""
    length, inner = x.shape[axis], math.prod(x.shape[axis + 1 :])
    shape = (*x.shape[:axis], indices.shape[0], *x.shape[axis + 1 :])

    def on_host(values: Any, at: Any, target: Any) -> None:
        np.take(values, _within(at, length), axis, out=target, mode="clip")

    text = kernel.take(x.dtype.itemsize, is_along=False)
    numbers = (indices.shape[0], inner, length)
    size = math.prod(shape)
    return _run(text, "take", (x, indices), x.dtype, shape, numbers, on_host, frame, size)


def taken_along(x: Any, indices: Any, axis: int, frame: FrameType) -> Any:
    """Elements of `x` at `indices`, int64 of the same shape except along the axis."""
    length, inner = x.shape[axis], math.prod(x.shape[axis + 1 :])

    def on_host(values: Any, at: Any, target: Any) -> None:
        target[...] = np.take_along_axis(values, _within(at, length), axis)

    text = kernel.take(x.dtype.itemsize, is_along=True)
    numbers = (indices.shape[axis], inner, length)
    shape, size = indices.shape, indices.size
    return _run(text, "take", (x, indices), x.dtype, shape, numbers, on_host, frame, size)


def _within(at: Any, length: int) -> Any:
    return np.clip(np.where(at < 0, at + length, at), 0, length - 1)


def where_kept(kept: Any, before: Any, count: int, frame: FrameType) -> Any:
    """The places, int64, of the `count` true elements of `kept`, bool; `before` counts the true
    ones up to each."""

    def on_host(values: Any, _: Any, target: Any) -> None:
        target[...] = np.flatnonzero(values)

    operands = (kept, before)
    return _run(
        kernel.WHERE, "where_kept", operands, INT64, (count,), (), on_host, frame, kept.size
    )


def put(to: Any, values: Any, frame: FrameType) -> Any:
    """`result[to[i]] = values[i] - 1`, all int64; `to` has each place once."""

    def on_host(places: Any, counted: Any, target: Any) -> None:
        target[places] = counted - 1

    return _run(kernel.PUT, "put", (to, values), INT64, to.shape, (), on_host, frame, to.size)


def searched(row: Any, values: Any, frame: FrameType, *, is_right: bool) -> Any:
    """The element of `row`, sorted and of one dimension, before which each value goes, as int64."""
    length = row.shape[0]

    def on_host(order: Any, wanted: Any, target: Any) -> None:
        target[...] = np.searchsorted(order, wanted, "right" if is_right else "left")

    text = kernel.search(row.dtype, is_right=is_right)
    operands, size = (row, values), values.size
    return _run(text, "search", operands, INT64, values.shape, (length,), on_host, frame, size)
