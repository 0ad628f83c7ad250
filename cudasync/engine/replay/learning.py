"""Floor 2. What a tape learns from: launches as numbers, in which a period is searched for.

Equal launches have equal numbers. Launches are equal if they call the same at the same place, on
the same memory, with the same numbers. Memory that a launch took from the pool for its result is
named by the distance to that launch: it may be other memory in each round, and the round is the
same.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cudasync.engine.op import Regions

# A period is at most so long, came so often in a row, and so many launches were repeated.
MOST_PERIOD = 64
ROUNDS = 3
LEAST = 32
# Numbers among the arguments of a launch. Structs are none: they may change, and have no hash.
_SCALARS = {each for each in np.sctypeDict.values() if issubclass(each, np.number | np.bool_)}
_NUMBERS = frozenset({int, float, bool, *_SCALARS})


class Launches:
    """The launches that a tape learns from, in their order."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self.recent: list[int] = []
        # The places in these where the thread had waited before.
        self.starts: list[int] = []
        # The memory that their results took, as weak references, and the launch of each region.
        self.memory: list[Callable[[], Any] | None] = []
        self._made: dict[Any, int] = {}
        # For the region of a view, the region of such memory that it lies in; None for others.
        self._whole: dict[Any, Any] = {}

    @property
    def keys(self) -> list[Any]:
        """What each number stands for: what was called, code and place, regions, numbers."""
        return list(self._numbers)

    def add(
        self,
        place: Sequence[Any],
        args: Sequence[Any],
        regions: Regions,
        memory: Callable[[], Any] | None,
        *,
        has_waited: bool,
    ) -> Any:
        """Note a launch, and return its key. If it took `memory` for its result, it writes nothing
        else."""
        scalars = tuple([each for each in args if each.__class__ in _NUMBERS])
        index = len(self.recent)
        named: Any = regions
        if memory is not None:
            ((result,),) = regions[2:]
            self._made[result] = index
        if self._made:
            named = tuple([tuple([self._named(e, index) for e in each]) for each in regions])
        key = *place, named, scalars
        number = self._numbers.setdefault(key, len(self._numbers))
        if has_waited:
            self.starts.append(index)
        self.recent.append(number)
        self.memory.append(memory)
        return key

    def _named(self, region: Any, index: int) -> Any:
        """What stands for a region in the key of this launch."""
        made = self._made.get(region)
        if made is not None:
            return index - made
        whole = self._whole.get(region, self)
        if whole is self:
            start, end, *_ = region
            around = (e for e in self._made if e[0] <= start and end <= e[1])
            whole = self._whole[region] = next(around, None)
        if whole is None:
            return region
        return index - self._made[whole], region[0] - whole[0], region[1] - whole[0]

    def period(self) -> tuple[list[int], bool]:
        """See `period`."""
        return period(self.recent, self.starts)


class Kinds:
    """Launches by what stays when numbers change: all but the numbers' values."""

    def __init__(self, numbers: Iterable[Any]) -> None:
        self._known: dict[Any, int] = {}
        # The number of the kind for each number of a launch, and the kinds with several.
        self.each = [self.of(each) for each in numbers]
        self.changing = {each for each, count in Counter(self.each).items() if count > 1}

    def of(self, key: Any) -> int:
        """The number of the kind of a launch."""
        *place, scalars = key
        kind = *place, *[each.__class__ for each in scalars]
        return self._known.setdefault(kind, len(self._known))


def period(recent: list[int], starts: list[int]) -> tuple[list[int], bool]:
    """The shortest round that `recent` ends with several times; empty if there is none. True if it
    begins where one of `starts` was."""
    last = recent[-1]
    for period in range(1, min(MOST_PERIOD, len(recent) // ROUNDS) + 1):
        if recent[-1 - period] == last:
            tail = recent[-max(ROUNDS * period, LEAST) :]
            if len(tail) >= LEAST and tail[period:] == tail[:-period]:
                first = len(recent) - period
                if starts and starts[-1] >= first:
                    first = starts[-1]
                    return [*recent[first:], *recent[-period:first]], True
                return recent[first:], False
    return [], False
