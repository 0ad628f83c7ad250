"""Floor 5. Several devices in one process: a copy or a part for each, and back to one array.

Arrays stand alone or in lists, tuples and dicts, which keep their form. Each call consists of
pushes and returns at once; hazards on the bytes order its results with all other ops.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync import xp
from cudasync.array import Array, copy, empty
from cudasync.distributed.argument_checks import alike, places_of
from cudasync.distributed.steps import tree_broadcast
from cudasync.xp.parameter_checks import place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def replicate(x: Any, devices: Sequence[Any]) -> list[Any]:
    """A copy of `x` for each device, in their order; none shares memory with `x`.

    `x` is an array, a view or a NumPy array, or lists, tuples and dicts of these. `devices` are
    ordinals, Devices or "cpu"; a device may come several times. Each device that has its copy
    passes it on. ValueError for no devices, TypeError for anything but arrays.
    """
    places = _places(devices)

    def on_each(each: Any) -> list[Any]:
        source = _array(each)
        made = [empty(source.shape, source.dtype, device=device) for device in places]
        # Begin on the source's device, if it is in the list; others then copy from a neighbour.
        first = next((n for n, device in enumerate(places) if device == source.device), 0)
        copy(made[first], source, name="replicate")
        tree_broadcast([*made[first:], *made[:first]], "replicate", 0)
        return made

    return _by_device(x, on_each, len(places))


def scatter(x: Any, devices: Sequence[Any], axis: int = 0) -> list[Any]:
    """Part r of `x` along `axis`, copied to device r; lengths of parts differ by at most one.

    Arguments are as for `replicate`. The longer parts come first. With fewer elements than devices
    some parts are empty. ValueError for an axis that an array lacks.
    """
    places = _places(devices)

    def in_parts(each: Any) -> list[Any]:
        source = _array(each)
        along = _axis(axis, source.ndim)
        made = []
        for device, run in zip(places, shares(source.shape[along], len(places)), strict=True):
            part = source[(slice(None),) * along + (run,)]
            target = empty(part.shape, part.dtype, device=device)
            if part.size:
                copy(target, part, name="scatter")
            made.append(target)
        return made

    return _by_device(x, in_parts, len(places))


def gather(parts: Sequence[Any], device: Any = None, axis: int = 0) -> Any:
    """One array of all parts along `axis`, on `device` (default: the first part's device).

    The inverse of `scatter`. Parts may have any lengths, be views, and be on any devices; or they
    are lists, tuples and dicts of one form. ValueError for no parts and for shapes that differ
    beyond that axis; TypeError for different dtypes.
    """
    given = list(parts)
    if not given:
        raise ValueError("no parts are given to gather")
    first = given[0]
    if isinstance(first, dict):
        _raise_unless_formed(
            given, lambda each: isinstance(each, dict) and each.keys() == first.keys()
        )
        return {key: gather([each[key] for each in given], device, axis) for key in first}
    if isinstance(first, (list, tuple)):
        _raise_unless_formed(
            given, lambda each: isinstance(each, type(first)) and len(each) == len(first)
        )
        return type(first)(gather(each, device, axis) for each in zip(*given, strict=True))
    arrays = [_array(each) for each in given]
    along = _axis(axis, arrays[0].ndim)

    def others(shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:along], *shape[along + 1 :])

    for each in arrays:
        if each.ndim != arrays[0].ndim or others(each.shape) != others(arrays[0].shape):
            raise ValueError(
                f"parts of the shapes {arrays[0].shape} and {each.shape} differ in more than "
                f"axis {along}"
            )
        alike([each], each.shape, arrays[0].dtype, "a part")
    ends = np.cumsum([0, *(each.shape[along] for each in arrays)]).tolist()
    shape = list(arrays[0].shape)
    shape[along] = ends[-1]
    target = place(device) if device is not None else arrays[0].device
    whole = empty(tuple(shape), arrays[0].dtype, device=target)
    for each, (start, end) in zip(arrays, pairwise(ends), strict=True):
        if each.size:
            copy(whole[(slice(None),) * along + (slice(start, end),)], each, name="gather")
    return whole


def shares(length: int, count: int) -> list[slice]:
    """`count` runs that cover `length`, the longer ones first; lengths differ by at most one."""
    least, longer = divmod(length, count)
    ends = np.cumsum([0, *(least + (each < longer) for each in range(count))]).tolist()
    return [slice(start, end) for start, end in pairwise(ends)]


def _by_device(x: Any, make: Callable[[Any], list[Any]], count: int) -> list[Any]:
    """The results of `make` for each array, as one tree for each device."""
    if isinstance(x, dict):
        columns = {key: _by_device(each, make, count) for key, each in x.items()}
        return [{key: row[n] for key, row in columns.items()} for n in range(count)]
    if isinstance(x, (list, tuple)):
        rows = [_by_device(each, make, count) for each in x]
        return [type(x)(row[n] for row in rows) for n in range(count)]
    return make(x)


def _raise_unless_formed(parts: Sequence[Any], is_alike: Callable[[Any], bool]) -> None:
    if not all(is_alike(each) for each in parts):
        raise ValueError("the parts are lists, tuples or dicts of different structure")


def _places(devices: Sequence[Any]) -> list[Any]:
    found = places_of(devices)
    if not found:
        raise ValueError("devices= names no device: give at least one")
    return found


def _array(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return xp.asarray(x, device="cpu")
    if not isinstance(x, Array):
        raise TypeError(
            f"x must be an array, or lists, tuples and dicts of arrays, not {type(x).__name__}"
        )
    return x


def _axis(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise ValueError(f"axis={axis} is outside an array with {ndim} axes")
    return axis % ndim
