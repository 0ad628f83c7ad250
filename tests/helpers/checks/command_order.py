"""The order of calls in a program of streams and events, by brute force.

A program is a list of calls. Each call is a point of the host. A call that gives its stream work is
also a point of that stream. Edges follow CUDA's rules one by one. Two accesses are ordered if a
path of edges leads from one to the other. This code shares no line and no idea with the clocks that
it judges.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

LEGACY = 0


@dataclass(frozen=True)
class Call:
    """One call: what it does, where, and the bytes (space, start, end) that it reads and writes.

    Stream 0 is the legacy default stream; odd ones block with it, even ones do not.
    """

    what: str
    stream: int = 0
    event: int = 0
    reads: tuple[tuple[str, int, int], ...] = ()
    writes: tuple[tuple[str, int, int], ...] = ()


@dataclass
class Ordering:
    """The edges of one program; a point is ("host", i) or ("device", i) for its i-th call."""

    calls: list[Call]
    edges: dict[tuple[str, int], list[tuple[str, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        records: dict[int, int] = {}
        for i, call in enumerate(self.calls):
            if i:
                self._edge(("host", i - 1), ("host", i))
            if self._is_work(i):
                self._edge(("host", i), ("device", i))
                for j in self._earlier(i, call.stream):
                    self._edge(("device", j), ("device", i))
            if call.what == "record":
                records[call.event] = i
            elif call.what == "wait" and call.event in records:
                self._edge(("device", records[call.event]), ("device", i))
            elif call.what == "wait for event" and call.event in records:
                self._edge(("device", records[call.event]), ("host", i))
            elif call.what == "wait for stream":
                for j in self._earlier(i, call.stream, joins=call.stream == LEGACY):
                    self._edge(("device", j), ("host", i))
            elif call.what == "wait for all":
                for j in range(i):
                    self._edge(("device", j), ("host", i))

    def _is_work(self, i: int) -> bool:
        """True for a call that gives its stream work. A wait for an event that was never recorded
        gives it none."""
        call = self.calls[i]
        if call.what == "wait":
            earlier = self.calls[:i]
            return any(c.what == "record" and c.event == call.event for c in earlier)
        return call.what in ("fill", "copy", "kernel", "record")

    def _edge(self, before: tuple[str, int], after: tuple[str, int]) -> None:
        self.edges.setdefault(before, []).append(after)

    def _earlier(self, i: int, stream: int, *, joins: bool = True) -> list[int]:
        """Earlier calls with work that comes before the work that call i gives to `stream`."""
        found = []
        for j, other in enumerate(self.calls[:i]):
            if not self._is_work(j):
                continue
            same = other.stream == stream
            into_legacy = stream == LEGACY and other.stream % 2 == 1
            from_legacy = stream % 2 == 1 and other.stream == LEGACY
            if same or (joins and (into_legacy or from_legacy)):
                found.append(j)
        return found

    def reaches(self, start: tuple[str, int], goal: tuple[str, int]) -> bool:
        """True if a path of edges leads from `start` to `goal`."""
        stack, seen = [start], {start}
        while stack:
            point = stack.pop()
            if point == goal:
                return True
            new = [p for p in self.edges.get(point, ()) if p not in seen]
            seen.update(new)
            stack += new
        return False

    def races(self) -> set[tuple[int, int]]:
        """The pairs of calls that conflict without being ordered."""
        found = set()
        for i, j in combinations(range(len(self.calls)), 2):
            if conflict(self.calls[i], self.calls[j]):
                one, two = self._place(i), self._place(j)
                if not self.reaches(one, two) and not self.reaches(two, one):
                    found.add((i, j))
        return found

    def _place(self, i: int) -> tuple[str, int]:
        return ("host" if self.calls[i].what.startswith("host") else "device"), i


def conflict(one: Call, two: Call) -> bool:
    """True if both touch a byte, and one of them writes it."""
    pairs = [(one.writes, two.writes), (one.writes, two.reads), (one.reads, two.writes)]
    return any(
        a[0] == b[0] and a[1] < b[2] and b[1] < a[2]
        for left, right in pairs
        for a in left
        for b in right
    )
