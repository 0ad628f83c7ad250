"""Floor 2. The objects in `reads=` and `writes=`: variables, and objects with bytes."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.atomic import Tickets
from cudasync.driver.memory.strides import contiguous_strides
from cudasync.driver.ownership.unpicklable import unpicklable
from cudasync.engine import current
from cudasync.engine.device.ready import settle
from cudasync.engine.hazards.interval_map import Gapped, Region
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.log.entries import Forget

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.engine.hazards.history import History


@unpicklable("make a Var there: it orders ops of one process")
class Var:
    """A pure token: orders things without bytes, such as a file or a random generator.

    Ops that name it in `reads=` run together; an op that names it in `writes=` runs alone.
    """

    __slots__ = (
        "__weakref__",
        "_counts",
        "_histories",
        "_pushed",
        "_rested",
        "_written",
        "name",
    )

    # The bytes that it stands for, if it stands for known bytes.
    memory: Region | None = None

    def __init__(self, name: str = "") -> None:
        self.name = name
        # The history by epoch (see `log.epoch`); empty while no op needs one.
        self._histories: dict[int, History] = {}
        # The epochs in which it was at rest and its history was forgotten: the largest counts.
        self._rested: dict[int, None] = {}
        # The numbers of pushed writes: of it alone, and together with other variables.
        self._pushed = Tickets()
        self._written = self._pushed.count
        self._counts: dict[Tickets | tuple[int, ...], Tickets] = {}

    @property
    def version(self) -> int:
        """The number of writes pushed so far."""
        together = [each for each in list(self._counts) if isinstance(each, Tickets)]
        return self._pushed.taken + sum(each.taken for each in together)

    def _note_write(self) -> None:
        self._pushed.next()

    def wait(self, timeout: float | None = None) -> None:
        """Block until the last write pushed so far has finished; errors as for `Op.wait`."""
        wait_for_writers([self], timeout)

    def __repr__(self) -> str:
        return f"<Var {self.name!r} version {self.version}>"


def counted_together(variables: tuple[Var, ...]) -> Tickets:
    """A counter that counts one more write of all of these variables at each step.

    The same variables have the same counter, so repeated requests make only one.
    """
    # By `id`, so that no variable keeps another alive.
    key = tuple(map(id, variables))
    known = variables[0]._counts.get(key) if variables else None
    # Another variable may have the same `id` by now, but it does not have the counter.
    if known is not None and all(known in each._counts for each in variables):
        return known
    made = Tickets()
    for each in variables:
        each._counts[made] = made
    if variables:
        # The place of the look-up. Concurrent threads may each make a counter.
        variables[0]._counts[key] = made
    return made


def as_tuple(things: object) -> tuple[Any, ...]:
    """One thing or an iterable of them, or None, as a tuple."""
    if things is None:
        return ()
    if isinstance(things, (list, tuple, set, frozenset)) and not isinstance(things, Region):
        return tuple(things)
    return (things,)


def resolve(things: object, word: str) -> tuple[list[Var], list[Region]]:
    """The variables and byte ranges that `things` (one thing or an iterable of them) stand for.

    `word` is their keyword, for the error. Raises TypeError for a thing that has neither.
    """
    variables: list[Var] = []
    regions: list[Region] = []
    for thing in as_tuple(things):
        if isinstance(thing, Var):
            variables.append(thing)
        else:
            regions.append(resolve_one(thing, word))
    return variables, regions


def resolve_one(thing: Any, word: str) -> Region:
    """The byte range that one thing stands for."""
    if isinstance(thing, np.ndarray):
        return _host_region(thing)
    region = getattr(thing, "region", thing)
    if isinstance(region, Region):
        return region
    if hasattr(thing, "ptr") and hasattr(thing, "size_bytes"):
        start = int(thing.ptr)
        return Region(start, start + int(thing.size_bytes))
    interface = getattr(thing, "__cuda_array_interface__", None)
    if isinstance(interface, dict):
        return interface_region(interface)
    raise TypeError(
        f"{word}= takes variables, device arrays and NumPy arrays, not {type(thing).__name__}: "
        f"for an object without bytes of its own, make a Var"
    )


def wait_for_writers(things: list[Any], timeout: float | None) -> None:
    """Wait for the last writers of `things`; raise the failure that poisons them."""
    engine = current.engine()
    is_simple = engine._is_direct and len(things) == 1 and isinstance(things[0], Region)
    if is_simple and COMBINER.is_quiet(things[0]):
        return
    engine._mark(things).wait(timeout)


def is_written(region: Region) -> bool:
    """True if an unfinished op writes `region`, or a failed op wrote it. Waits for no thread."""
    if COMBINER.is_quiet(region):
        return False
    mark = current.engine()._mark([region])
    COMBINER.plan(mark)
    settle()
    return not mark.finished or mark.failure is not None


def span(address: int, shape: Iterable[int], strides: Iterable[int], item_size: int) -> Region:
    """The bytes from the first to the last element, whatever the signs of the strides."""
    low = high = address
    size = item_size
    dimensions = list(zip(shape, strides, strict=True))
    for length, stride in dimensions:
        if length == 0:
            return Region(address, address)
        size *= length
        reach = (length - 1) * stride
        low, high = (low + reach, high) if reach < 0 else (low, high + reach)
    high += item_size
    if size == high - low or not _has_gaps(dimensions, item_size):
        return Region(low, high)
    return Gapped(low, high)


def _has_gaps(dimensions: list[tuple[int, int]], item_size: int) -> bool:
    """True if there may be bytes between the elements that belong to no element."""
    covered = item_size
    for stride, length in sorted((abs(stride), length) for length, stride in dimensions):
        if length > 1 and stride > covered:
            return True
        covered += (length - 1) * stride
    return False


def interface_region(interface: dict[str, Any]) -> Region:
    """The span of an object by its `__cuda_array_interface__`."""
    shape = interface["shape"]
    item_size = np.dtype(interface["typestr"]).itemsize
    strides = interface.get("strides")
    if strides is None:
        strides = contiguous_strides(shape, item_size)
    return span(interface["data"][0], shape, strides, item_size)


def _host_region(array: np.ndarray[Any, Any]) -> Region:
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    _forget_with(root)
    return span(array.ctypes.data, array.shape, array.strides, array.itemsize)


# Root arrays with a callback for their end. Without it, a new array at the address of a dead one
# would inherit its history: a needless wait at best, a foreign failure at worst.
_known_roots: dict[int, weakref.ref[np.ndarray[Any, Any]]] = {}


def _forget_with(root: np.ndarray[Any, Any]) -> None:
    key = id(root)
    known = _known_roots.get(key)
    if known is not None and known() is root:
        return
    region = span(root.ctypes.data, root.shape, root.strides, root.itemsize)

    def gone(_: object, key: int = key, region: Region = region) -> None:
        _known_roots.pop(key, None)
        COMBINER.log.append(Forget(region))

    _known_roots[key] = weakref.ref(root, gone)
