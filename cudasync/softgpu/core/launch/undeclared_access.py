"""Cellar. The sentence about an undeclared access: the op, the place, the access, the remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cudasync.softgpu.interface.access_recording import Touch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.core.modules.modules import Function


class Declared(NamedTuple):
    """The declared use of the bytes [start, end)."""

    start: int
    end: int
    reads: bool
    writes: bool

    def words(self) -> str:
        """The declaration in words."""
        match self.reads, self.writes:
            case True, True:
                return "read and written"
            case True, False:
                return "only read"
            case False, True:
                return "overwritten without being read"
            case _:
                return "not used"


class Access(NamedTuple):
    """An undeclared access; `allowed` says whether its bytes may be read, and written."""

    who: str
    address: int
    kind: Touch
    allocation: Allocation | None
    allowed: tuple[bool, bool]


class _Origin(NamedTuple):
    """The address from which the bytes of some memory are counted."""

    order: int
    address: int
    name: str


_DONE = {
    Touch.WRITTEN: "written",
    Touch.READ: "read",
    Touch.READ_FIRST: "read before this launch has written it",
}
_PAST = "Name the memory in reads= and writes="
_PAST_LAUNCH = f"{_PAST}, or give the kernel a view of all that it uses."
_NARROW = {
    True: "Name it in writes= as well, or wrap the argument in InOut(...) instead of In(...).",
    False: "Name it in reads= as well, or wrap the argument in InOut(...) instead of Out(...).",
}


def sentence(
    found: Sequence[Access],
    rows: Sequence[Declared],
    op: str,
    function: Function | None = None,
    parameters: bytes = b"",
) -> str:
    """The sentence about the first access of `found`, by the kernel's arguments, then address."""
    pointers = list(_pointers(function, parameters)) if function is not None else []
    origin, access = min(
        ((_origin(each, pointers), each) for each in found),
        key=lambda pair: (pair[0].order, pair[1].address),
    )
    offset = access.address - origin.address
    place = f"byte {offset}" if offset >= 0 else f"the byte {-offset} before the start"
    is_write = access.kind is Touch.WRITTEN
    did = _DONE[access.kind]
    if access.kind is Touch.READ_FIRST and not access.allowed[1]:
        did = _DONE[Touch.READ]
    past = f"{_PAST}." if function is None else _PAST_LAUNCH
    remedy = _NARROW[is_write] if any(access.allowed) else past
    return (
        f"an access that was not declared: {access.who}, {op}: {place} of {origin.name} is "
        f"{did}, but {_extent(access, rows, origin)}. {remedy}"
    )


def _pointers(function: Function, parameters: bytes) -> Iterator[_Origin]:
    """The words in the arguments that may be addresses."""
    declared = function.module.source.function(function.name).parameters
    for index, ((start, size), parameter) in enumerate(zip(function.places, declared, strict=True)):
        for place in range(start, start + size - 7, 8):
            address = int.from_bytes(parameters[place : place + 8], "little")
            yield _Origin(index, address, f"argument {index + 1} ({parameter.name})")


def _origin(access: Access, pointers: Sequence[_Origin]) -> _Origin:
    """The nearest argument before the access in its allocation, else the allocation's start."""
    made = access.allocation
    if made is None:
        return _Origin(len(pointers), access.address, f"host memory at {access.address:#x}")
    here = [each for each in pointers if made.start <= each.address <= made.end]
    before = [each for each in here if each.address <= access.address]
    if before:
        return max(before, key=lambda each: (each.address, -each.order))
    if here:
        return min(here, key=lambda each: (each.address, each.order))
    return _Origin(len(pointers), made.start, made.describe())


def _extent(access: Access, rows: Sequence[Declared], origin: _Origin) -> str:
    """The declarations for the allocation, with bytes counted from the origin."""
    made = access.allocation
    low, high = (made.start, made.end) if made else (access.address, access.address + 1)
    near = sorted({row for row in rows if row.start < high and low < row.end})
    if not near:
        return "nothing of that memory is declared"
    start = origin.address
    told = (f"bytes {r.start - start} to {r.end - start} to be {r.words()}" for r in near[:4])
    more = ", and more" if len(near) > 4 else ""
    return f"declared of that memory are {' and '.join(told)}{more}"
