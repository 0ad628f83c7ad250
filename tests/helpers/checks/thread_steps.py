"""Tiny kernels as lists of steps, and a brute-force answer to whether their threads race.

One block takes the steps of a list in order. A step is an access of one thread, or a barrier of the
block, a warp, or some lanes of a warp. The brute force is a graph of all steps of all threads. Two
accesses race if they conflict and no path leads from one to the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

THREADS = 64
SHARED_BYTES = 8


@dataclass(frozen=True)
class Touch:
    """Thread `thread` reads, writes or (atomically) changes `size` bytes at `offset`."""

    thread: int
    what: str  # "read", "write" or "atomic"
    offset: int
    size: int

    def conflicts(self, other: Touch) -> bool:
        if self.thread == other.thread:
            return False
        if self.offset >= other.offset + other.size or other.offset >= self.offset + self.size:
            return False
        kinds = {self.what, other.what}
        return "write" in kinds or kinds == {"read", "atomic"}


@dataclass(frozen=True)
class Meet:
    """A barrier: of the block ("block"), or of the lanes of a mask in a warp."""

    warp: int | str
    mask: int = 0xFFFFFFFF

    @property
    def threads(self) -> list[int]:
        if self.warp == "block":
            return [*range(THREADS)]
        assert isinstance(self.warp, int)
        return [32 * self.warp + lane for lane in range(32) if self.mask >> lane & 1]


def races(steps: list[Touch | Meet]) -> list[tuple[Touch, Touch]]:
    """All pairs that race."""
    # For each step, all steps that come before it.
    before: list[set[int]] = []
    last: dict[int, set[int]] = {thread: set() for thread in range(THREADS)}
    for n, step in enumerate(steps):
        threads = [step.thread] if isinstance(step, Touch) else step.threads
        known = set().union(*(last[thread] for thread in threads))
        before.append(known)
        for thread in threads:
            last[thread] = known | {n}
    touches = [(n, step) for n, step in enumerate(steps) if isinstance(step, Touch)]
    return [
        (one, other)
        for (n, one), (m, other) in combinations(touches, 2)
        if one.conflicts(other) and n not in before[m]
    ]


_TYPES = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}


def text_of(steps: list[Touch | Meet]) -> str:
    """The kernel as PTX."""
    lines = [
        ".version 7.0",
        ".target sm_75",
        ".address_size 64",
        ".visible .entry steps() {",
        f"    .shared .align 8 .b8 bytes[{SHARED_BYTES}];",
        "    .reg .b32 %tid, %value, %warp;",
        "    .reg .b64 %long;",
        "    .reg .pred %is_it, %is_here;",
        "    mov.u32 %tid, %tid.x;",
        "    shr.u32 %warp, %tid, 5;",
    ]
    for n, step in enumerate(steps):
        lines += _lines(n, step)
    return "\n".join([*lines, "    ret;", "}", ""])


def _lines(n: int, step: Touch | Meet) -> list[str]:
    if isinstance(step, Meet):
        if step.warp == "block":
            return ["    bar.sync 0;"]
        # The lanes of the mask in this warp.
        return [
            "    and.b32 %value, %tid, 31;",
            f"    shr.u32 %value, {step.mask}, %value;",
            "    and.b32 %value, %value, 1;",
            "    setp.eq.u32 %is_here, %value, 1;",
            f"    setp.eq.and.u32 %is_it, %warp, {step.warp}, %is_here;",
            f"    @%is_it bar.warp.sync {step.mask};",
        ]
    place = f"[bytes+{step.offset}]"
    type_ = _TYPES[step.size]
    register = "%long" if step.size == 8 else "%value"
    lines = [f"    setp.eq.u32 %is_it, %tid, {step.thread};"]
    match step.what:
        case "read":
            return [*lines, f"    @%is_it ld.shared.{type_} {register}, {place};"]
        case "write":
            number = (n + 1) * 0x0101010101010101 & (1 << 8 * step.size) - 1
            bits = 64 if step.size == 8 else 32
            return [
                *lines,
                f"    mov.u{bits} {register}, {number};",
                f"    @%is_it st.shared.{type_} {place}, {register};",
            ]
    return [*lines, f"    @%is_it red.shared.add.u32 {place}, 1;"]
