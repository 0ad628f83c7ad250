"""The tower. Dependencies of ops, computed again from their accesses, in push order.

The engine forgets a predecessor that is over, but a profile needs it. So the engine's planning is
not used. The last writer of each variable and each byte, and its readers since, follow from the
accesses alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

from cudasync.engine.hazards.interval_map import Region
from cudasync.profile.record import Dependency

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudasync.profile.record import Record


class _State:
    """The last writer of some data, and the readers since."""

    __slots__ = ("readers", "writer")

    def __init__(self, writer: Record | None = None, readers: Iterable[Record] = ()) -> None:
        self.writer = writer
        self.readers = list(readers)


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
            self._states.insert(index, _State(before.writer, before.readers))
        return index


def find(records: Sequence[Record]) -> None:
    """Give each record its dependencies; `records` are in the order of pushes."""
    memory, variables = _Bytes(), dict[Any, _State]()
    for record in records:
        record.before.clear()
        if record.kind == "allocate":
            # New memory has no history.
            for region in record.writes:
                memory.reset(region, record)  # type: ignore[arg-type]
            continue
        found: dict[tuple[Record, str], list[str]] = {}
        written = set(record.writes)
        for what in dict.fromkeys((*record.reads, *record.writes)):
            for name, state in _states(memory, variables, what):
                is_read = what in record.reads
                if state.writer is not None and state.writer is not record:
                    hazard = "RAW" if is_read else "WAW"
                    found.setdefault((state.writer, hazard), []).append(name)
                if what in written:
                    for reader in state.readers:
                        if reader is not record:
                            found.setdefault((reader, "WAR"), []).append(name)
        record.before += [Dependency(on, how, _said(over)) for (on, how), over in found.items()]
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


def _said(over: list[str]) -> str:
    names = list(dict.fromkeys(over))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
