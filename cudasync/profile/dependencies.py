"""The tower. Dependencies of ops, computed again from their accesses, in push order.

The engine forgets a predecessor that is over, but a profile needs it. So the engine's planning is
not used. The last writer of each variable and each byte, and its readers since, follow from the
accesses alone. The pool says when it gives memory of a dead array to a new result: an order behind
users of the old array is no order of the program.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from typing import TYPE_CHECKING, Any

from cudasync.engine.hazards.interval_map import Region
from cudasync.profile.record import Dependency

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudasync.profile.record import Record


class _State:
    """The last writer of some data, and the readers since. After the end of their array the memory
    `is_handed_on`, until its next writer."""

    __slots__ = ("is_handed_on", "readers", "writer")

    def __init__(
        self,
        writer: Record | None = None,
        readers: Iterable[Record] = (),
        *,
        is_handed_on: bool = False,
    ) -> None:
        self.writer = writer
        self.readers = list(readers)
        self.is_handed_on = is_handed_on


class _Bytes:
    """States of all memory: `_states[i]` is for the bytes from `_starts[i]` to the next start."""

    def __init__(self) -> None:
        self._starts = [0]
        self._states = [_State()]

    def cut(self, region: Region) -> list[tuple[Region, _State]]:
        """The parts of `region`, each with its own state."""
        first, last = self._split(region.start), self._split(region.end)
        bounds = self._starts[first : last + 1]
        states = self._states[first:last]
        return [
            (Region(start, end), state)
            for start, end, state in zip(bounds, bounds[1:], states, strict=False)
        ]

    def reset(self, region: Region, writer: Record) -> None:
        """One state for all of `region`: `writer` wrote it, and no op has read it since."""
        if region.end <= region.start:
            return
        first, last = self._split(region.start), self._split(region.end)
        self._starts[first:last] = [region.start]
        self._states[first:last] = [_State(writer)]

    def _split(self, at: int) -> int:
        index = bisect_left(self._starts, at)
        if index == len(self._starts) or self._starts[index] != at:
            before = self._states[bisect_right(self._starts, at) - 1]
            self._starts.insert(index, at)
            twin = _State(before.writer, before.readers, is_handed_on=before.is_handed_on)
            self._states.insert(index, twin)
        return index


def find(records: Sequence[Record], handed_on: Sequence[tuple[int, Region]] = ()) -> None:
    """Give each record its dependencies; `records` are in the order of pushes.

    `handed_on` has the memory that the pool gave to new results, each with the number of the next
    op then.
    """
    memory, variables = _Bytes(), dict[Any, _State]()
    handing_on = deque(sorted(handed_on))
    for record in records:
        while handing_on and handing_on[0][0] <= record.number:
            for _, state in memory.cut(handing_on.popleft()[1]):
                state.is_handed_on = True
        record.before.clear()
        if record.kind == "allocate":
            # New memory has no history.
            for region in record.writes:
                memory.reset(region, record)  # type: ignore[arg-type]
            continue
        found: dict[tuple[Record, str, bool], list[str]] = {}
        written = set(record.writes)
        for what in dict.fromkeys((*record.reads, *record.writes)):
            for name, state in _states(memory, variables, what):
                is_read = what in record.reads
                if state.writer is not None and state.writer is not record:
                    hazard = "RAW" if is_read else "WAW"
                    is_reuse = state.is_handed_on and not is_read
                    said = name + _formerly(state) if is_reuse else name
                    found.setdefault((state.writer, hazard, is_reuse), []).append(said)
                if what in written:
                    for reader in state.readers:
                        if reader is not record:
                            key = reader, "WAR", state.is_handed_on
                            found.setdefault(key, []).append(name + _formerly(state))
        for (on, hazard, is_reuse), over in found.items():
            record.before.append(Dependency(on, hazard, _said(over), is_reuse))
        for what in record.reads:
            for _, state in _states(memory, variables, what):
                if state.writer is not record:
                    state.readers.append(record)
        for what in record.writes:
            if isinstance(what, Region):
                memory.reset(what, record)
            else:
                variables[what] = _State(record)


def _states(memory: _Bytes, variables: dict[Any, _State], what: Any) -> list[tuple[str, _State]]:
    if not isinstance(what, Region):
        return [(f"variable {what.name!r}", variables.setdefault(what, _State()))]
    if what.end <= what.start:
        return []
    return [
        (f"{part.end - part.start} bytes at 0x{part.start:x}", state)
        for part, state in memory.cut(what)
    ]


def _formerly(state: _State) -> str:
    """The array that had memory which was handed on."""
    if not state.is_handed_on:
        return ""
    if state.writer is None:
        return ", memory of an array that is gone"
    return f", memory of what {state.writer.name} made, pushed at {state.writer.push_site}"


def _said(over: list[str]) -> str:
    names = list(dict.fromkeys(over))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
