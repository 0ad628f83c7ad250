"""Places that steps of random programs read and write: views of arrays, and tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

LENGTH = 24
CPU_ARRAY = 2


@dataclass(frozen=True)
class View:
    """`array[start:stop:step]` of device array ("d") or host array ("h") number `index`.

    Host array number `CPU_ARRAY` is one of ours on the CPU, the others are NumPy's.
    """

    space: str
    index: int
    start: int
    stop: int | None
    step: int = 1

    @property
    def slice(self) -> slice:
        return slice(self.start, self.stop, self.step)

    @property
    def elements(self) -> range:
        return range(*self.slice.indices(LENGTH))

    @property
    def span(self) -> slice:
        """The elements from the first to the last one touched. The engine keeps hazards on this
        range."""
        elements = self.elements
        return slice(min(elements), max(elements) + 1)

    @property
    def has_gaps(self) -> bool:
        return len(self.elements) < self.span.stop - self.span.start

    @property
    def array(self) -> tuple[str, int]:
        return self.space, self.index

    def overlaps(self, other: Place) -> bool:
        return (
            isinstance(other, View)
            and self.array == other.array
            and self.span.start < other.span.stop
            and other.span.start < self.span.stop
        )


@dataclass(frozen=True)
class Token:
    """A pure variable with a log that only ops naming the token touch."""

    index: int

    def overlaps(self, other: Place) -> bool:
        return self == other


Place: TypeAlias = View | Token
