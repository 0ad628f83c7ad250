"""Random accesses of a warp to one piece of memory, as a kernel's text and lane by lane.

The address of a lane is a constant, a step away from its neighbour's, or from a permutation. Lanes
are left out from both ends, or every other one. The memory has `ROOM` bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOM, LANES = 512, 32
TYPES = {1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "v4.u32"}
REGISTERS = {16: "{%v4, %w4, %x4, %y4}"}
DECLARED = """\
    .reg .u32 %lane, %at, %base, %order, %odd;
    .reg .u16 %v1, %v2;
    .reg .u32 %v4, %w4, %x4, %y4;
    .reg .u64 %v8, %far, %start;
    .reg .pred %p, %q;
    mov.u32 %lane, %tid.x;
"""


@dataclass(frozen=True)
class LaneAccess:
    """What lanes `first` to `last` (excluded) do; with `is_sparse`, only the even ones of these.

    A lane's address is `start` and `apart` times its number, or its place in a permutation.
    """

    kind: str
    size: int
    start: int
    apart: int
    first: int = 0
    last: int = LANES
    turn: int = 1
    is_sparse: bool = False

    def lanes(self) -> Iterator[tuple[int, int]]:
        """Each active lane in order, and the offset of its access."""
        for lane in range(self.first, self.last):
            if not (self.is_sparse and lane % 2):
                yield lane, self.start + self.apart * (lane * self.turn % LANES)

    def instructions(self, space: str) -> list[str]:
        """The lines of the access; the last of them is the access."""
        index = f"    mul.lo.u32 %at, %lane, {self.turn};"
        lines = [index, f"    and.b32 %at, %at, {LANES - 1};"] if self.turn != 1 else []
        lane = "%at" if lines else "%lane"
        lines += [
            f"    sub.u32 %order, %lane, {self.first};",
            f"    setp.lt.u32 %p, %order, {self.last - self.first};",
        ]
        if self.is_sparse:
            lines += [
                "    and.b32 %odd, %lane, 1;",
                "    setp.eq.u32 %q, %odd, 0;",
                "    and.pred %p, %p, %q;",
            ]
        if space == "shared":
            lines.append(f"    mad.lo.s32 %at, {lane}, {self.apart}, %base;")
            place = f"[%at+{self.start}]"
        else:
            lines.append(f"    mad.wide.s32 %far, {lane}, {self.apart}, %start;")
            place = f"[%far+{self.start}]"
        space = f".{space}" if space else ""
        values = REGISTERS.get(self.size, f"%v{self.size}")
        name = TYPES[self.size]
        lines.append(
            {
                "read": f"    @%p ld{space}.{name} {values}, {place};",
                "write": f"    @%p st{space}.{name} {place}, {values};",
                "atomic": f"    @%p red{space}.add.{name} {place}, {values};",
            }[self.kind]
        )
        return lines


@st.composite
def lane_accesses(draw, *, atomics: bool = False):
    """One access within the memory."""
    kind = draw(st.sampled_from(["read", "write", *(["atomic"] if atomics else [])]))
    size = draw(st.sampled_from([4, 8] if kind == "atomic" else sorted(TYPES)))
    apart = draw(st.sampled_from([0, size, size, size, 2 * size, -size]))
    while abs(apart) * (LANES - 1) + size > ROOM:
        apart //= 2
    apart -= apart % size if apart > 0 else 0
    low = -min(0, apart * (LANES - 1))
    high = ROOM - size - max(0, apart * (LANES - 1))
    start = draw(st.integers(-(-low // size), high // size)) * size
    return LaneAccess(
        kind,
        size,
        start,
        apart,
        first=draw(st.sampled_from([0, 0, 0, 5])),
        last=draw(st.sampled_from([LANES, LANES, 17])),
        turn=draw(st.sampled_from([1, 1, 1, 5, 2])),
        is_sparse=draw(st.sampled_from([False, False, True])),
    )
