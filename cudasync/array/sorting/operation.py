"""Floor 4, sorting. Arrays sorted along their last axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.dtypes.supported import INT64, supported
from cudasync.array.elementwise.layouts import contiguous, raise_if_over
from cudasync.array.elementwise.results import new_result
from cudasync.array.host.memory import CPU
from cudasync.array.memory.limits import check_size
from cudasync.array.memory.pool import Scratches
from cudasync.array.sorting.kernel import RUN, Pass, entry_bytes, kernel_name, source
from cudasync.array.steps.compilation import kernel_of
from cudasync.array.steps.on_host import computed
from cudasync.array.steps.step import Step
from cudasync.array.steps.step_cache import Known

if TYPE_CHECKING:
    from types import FrameType

    from cudasync.array.dtypes.supported import DType

_BLOCK = 256

# Steps, each with the scratch for its entries; the last step writes the result.
_known: Known[list[tuple[Step, Scratches | None]]] = Known()


def sort_rows(x: Any, frame: FrameType, *, gives_places: bool, is_descending: bool) -> Any:
    """A new array: the values along the last axis in order, or their places (int64).

    Stable; NaN counts as the largest. Pushed at once, with `frame` as the place of the push.
    """
    dtype = supported(x.dtype)
    result = contiguous(
        x.__cudasync_result__, INT64 if gives_places else dtype, x.shape, x.layout.device
    )
    name = "argsort" if gives_places else "sort"
    if result.device is CPU:

        def on_host(values: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> None:
            order = _order(values, is_descending)
            target[...] = order if gives_places else np.take_along_axis(values, order, -1)

        return computed(name, (x,), result, on_host)
    raise_if_over(x)
    check_size(result.shape, result.nbytes, result.device)
    made = new_result(result)
    if not result.size:
        return made
    x = x if x.is_contiguous else x.copy()
    rows, length = math.prod(x.shape[:-1]), x.shape[-1]
    steps = _known.get(
        (rows, length, dtype, gives_places, is_descending),
        result.device,
        lambda: _steps(result.device, rows, length, dtype, gives_places, is_descending),
    )
    source_of = x
    for step, scratches in steps:
        target = made if scratches is None else scratches.take((source_of,))
        step((source_of,), target, frame, is_new=True)
        source_of = target
    return made


def _order(values: np.ndarray[Any, Any], is_descending: bool) -> np.ndarray[Any, Any]:
    if not is_descending:
        return np.argsort(values, axis=-1, kind="stable")
    # Reversed twice, so that equal elements keep their order.
    turned = np.argsort(values[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return np.asarray(values.shape[-1] - 1 - turned)


def _steps(
    device: Any, rows: int, length: int, dtype: DType, gives_places: bool, is_descending: bool
) -> list[tuple[Step, Scratches | None]]:
    widths = [0, RUN]
    while widths[-1] < length:
        widths.append(2 * widths[-1])
    widths.pop()
    steps: list[tuple[Step, Scratches | None]] = []
    for width in widths:
        is_last = width == widths[-1]
        kind = Pass(dtype, gives_places, is_descending, not width, is_last)
        threads = rows * length if width else rows * -(-length // RUN)
        name = kernel_name(kind)
        step = Step(
            "argsort" if gives_places else "sort",
            device,
            kernel_of(source(kind), name, device),
            grid=(-(-threads // _BLOCK),),
            block=(_BLOCK,),
            first=(0, 0),
            numbers=[(rows, "Q"), (length, "Q"), (width, "Q")],
        )
        size = rows * length * entry_bytes(kind)
        steps.append((step, None if is_last else Scratches(device, size)))
    return steps
