"""Cellar. Finds the global memory on which the threads of a launch may race, from its PTX.

Memory in which each thread has its own bytes need not be watched. The address of an access is a
sum over thread and block indices (`ptx.linear`); the launch gives the factors. Memory is not
suspicious in three cases: nobody writes it; only atomics touch it; or all its accesses have the
same sum except for offsets, and no two threads reach the same byte. In the last case the sum is
a number in mixed radix: each digit begins where the lower digits end. If the text lets only one
thread of a block come to these accesses, only the blocks are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from cudasync.ptx import ir
from cudasync.ptx.cfg import ControlFlow
from cudasync.ptx.linear import Form, Forms, parameter
from cudasync.ptx.thread_values import ThreadValues, reaching
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.interface import race_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cudasync.softgpu.interface.launch import CompiledKernel, Dim3

_READS: Final = frozenset({"ld", "ldu"})
_FAR: Final = (StateSpace.GLOBAL, StateSpace.GENERIC)


@dataclass(frozen=True, slots=True)
class Site:
    """An access to memory that other threads may share, and its address form, if known."""

    form: Form | None
    size: int
    is_write: bool
    is_strong: bool


def lone_threads(kernel: ir.Function, block: Dim3) -> dict[int, int]:
    """For accesses to which only one thread of such a block may come: position and thread."""
    flow = ControlFlow(kernel)
    values = ThreadValues(kernel, block, {})

    def onward(index: int) -> Iterator[tuple[int, int]]:
        here = flow.blocks[index]
        yield from values.onward(kernel.body[here.end - 1], here.successors, index + 1)

    found = {}
    for index, threads in reaching(0, flow.exit, onward, values.everybody).items():
        for position in range(flow.blocks[index].start, flow.blocks[index].end):
            each = kernel.body[position]
            those = threads & values.threads(each.guard) if _is_far(each) else 0
            if those.bit_count() == 1:
                found[position] = those.bit_length() - 1
    return found


def sites_of(kernel: ir.Function, others: Iterable[ir.Function]) -> tuple[Site, ...]:
    """The global memory accesses of a kernel, and of the functions that it may call."""
    forms = Forms(kernel)
    found = [_site(each, forms) for each in kernel.body if _is_far(each)]
    # Arguments of functions are not followed, so their accesses have no form.
    found += [_site(each, None) for other in others for each in other.body if _is_far(each)]
    return tuple(found)


def _is_far(each: ir.Instruction) -> bool:
    if each.opcode == "cp":
        return "global" in each.modifiers
    is_access = each.opcode in (*_READS, "st", "atom", "red", "wmma", "ldmatrix", "stmatrix")
    return is_access and each.space in _FAR


def _site(each: ir.Instruction, forms: Forms | None) -> Site:
    form = None
    size = each.type.size * each.vector_size if each.types else 16
    is_plain = each.opcode in (*_READS, "st", "atom", "red")
    if each.opcode == "cp":
        # The access of a copy is the read of its source.
        last = each.operands[2]
        size = last.value if isinstance(last, ir.Integer) else 16
        form = forms.address(each.operands[1]) if forms is not None else None
    elif forms is not None and is_plain:
        place = 0 if each.opcode in ("st", "red") else 1
        form = forms.address(each.operands[place])
    is_write = each.opcode in ("st", "atom", "red", "stmatrix") or "store" in each.modifiers
    is_strong = race_records.is_strong(each) and race_records.is_wide(each)
    return Site(form, size, is_write, is_strong)


@dataclass(frozen=True, slots=True)
class _Reach:
    """The addresses of an access: in the memory of `root`, from `start` on, by digits (distance,
    count; count 0: unbounded). `way` maps thread indices to distances."""

    root: int
    start: int
    digits: tuple[tuple[int, int], ...]
    way: tuple[tuple[str, int], ...]
    site: Site
    # The one thread of a block that may come to it, if the text shows that.
    thread: int | None


class Suspicion:
    """The suspicious memory of launches of one kernel."""

    def __init__(self, kernel: CompiledKernel) -> None:
        self._kernel = kernel
        self._sites: tuple[Site, ...] = ()
        self._names: tuple[str, ...] = ()
        # Whether all accesses of different threads to one byte set the same bits of its mark, if no
        # memory is suspicious: plain reads alone, or atomics alone.
        self.marks_alike = bool(kernel.parts) and not any(
            _is_far(each) and race_records.is_strong(each) and each.opcode not in ("atom", "red")
            for part in kernel.parts
            for each in part.body
        )
        # By the shape of a block, for each site: the one thread that may come to it, or None.
        self._lone: dict[Dim3, list[int | None]] = {}
        if kernel.parts:
            own, *others = kernel.parts
            self._sites = sites_of(own, others)
            self._names = tuple(each.name for each in own.parameters)

    def _lone_in(self, block: Dim3) -> list[int | None]:
        found = self._lone.get(block)
        if found is None:
            own = self._kernel.parts[0]
            lone = lone_threads(own, block)
            places = [position for position, each in enumerate(own.body) if _is_far(each)]
            found = [lone.get(position) for position in places]
            found += [None] * (len(self._sites) - len(found))
            self._lone[block] = found
        return found

    def of(
        self, grid: Dim3, block: Dim3, parameters: bytes, ranges: Iterable[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """The ranges, of disjoint ones, that must be watched; none if the kernel cannot be."""
        if not self._kernel.parts:
            return []
        values = self._values(grid, block, parameters)
        pieces = list(ranges)
        lone = self._lone_in(block)
        reaches = [
            _reach(each, values | _indices(thread, block), pieces, thread)
            for each, thread in zip(self._sites, lone, strict=True)
        ]
        unknown = [site for site, reach in zip(self._sites, reaches, strict=True) if reach is None]
        if any(each.is_write for each in unknown):
            return pieces
        known = [each for each in reaches if each is not None]
        extents = {f"%tid.{axis}": count for axis, count in zip("xyz", block, strict=True)}
        extents |= {f"%ctaid.{axis}": count for axis, count in zip("xyz", grid, strict=True)}
        threads = [name for name, count in extents.items() if count > 1]
        blocks = [name for name in threads if name.startswith("%ctaid.")]
        found = []
        for start, end in pieces:
            here = [each for each in known if start <= each.root < end]
            # Of one thread of each block, only the blocks may race.
            is_alone = len({each.thread for each in here}) == 1 and here[0].thread is not None
            dimensions = len(blocks if is_alone else threads)
            # Accesses with unknown addresses are reads, and may fall into this range.
            if any(each.site.is_write for each in here) and (
                unknown or not _are_apart(here, dimensions)
            ):
                found.append((start, end))
        return found

    def _values(self, grid: Dim3, block: Dim3, parameters: bytes) -> dict[str, int]:
        values: dict[str, int] = {}
        kernel = self._kernel
        for axis, threads, blocks in zip("xyz", block, grid, strict=True):
            values[f"%ntid.{axis}"] = threads
            values[f"%nctaid.{axis}"] = blocks
            if threads == 1:
                values[f"%tid.{axis}"] = 0
            if blocks == 1:
                values[f"%ctaid.{axis}"] = 0
        places = zip(self._names, kernel.parameter_offsets, kernel.parameter_sizes, strict=True)
        for name, offset, size in places:
            for width in (4, 8):
                for inside in range(0, size - width + 1, width):
                    raw = parameters[offset + inside : offset + inside + width]
                    # Counts are signed; an unsigned one this large would exceed any memory.
                    number = int.from_bytes(raw, "little", signed=True)
                    values[parameter(name, inside, width)] = number
        values |= {f"threads:{axis}": n for axis, n in zip("xyz", block, strict=True)}
        values |= {f"blocks:{axis}": n for axis, n in zip("xyz", grid, strict=True)}
        return values


def _indices(thread: int | None, block: Dim3) -> dict[str, int]:
    """The indices of the one thread of a block that may come to an access."""
    if thread is None:
        return {}
    x, y, _ = block
    return {"%tid.x": thread % x, "%tid.y": thread // x % y, "%tid.z": thread // (x * y)}


def _reach(
    site: Site, values: dict[str, int], ranges: Sequence[tuple[int, int]], thread: int | None
) -> _Reach | None:
    if site.form is None:
        return None
    # The sum itself may lie outside the memory, so the root is the pointer within it.
    pointers = [values.get(term[0], 0) for term in site.form if len(term) == 1]
    roots = [each for each in pointers if any(start <= each < end for start, end in ranges)]
    if len(roots) != 1:
        return None
    start = 0
    digits: dict[str, int] = {}
    turns: list[int] = []
    for term, count in site.form.items():
        number, open_ = count, ""
        for symbol in term:
            if symbol in values:
                number *= values[symbol]
            elif open_ or not symbol.startswith(("%tid.", "%ctaid.", "@")):
                return None
            else:
                open_ = symbol
        if open_.startswith("@"):
            turns.append(abs(number))
        elif open_:
            digits[open_] = digits.get(open_, 0) + number
        else:
            start += number
    turns = [each for each in turns if each]
    if turns:
        # All loop terms are multiples of one step, and loop counts are unknown.
        step = min(turns)
        if any(each % step for each in turns):
            return None
        digits["@"] = step
        start = roots[0] + (start - roots[0]) % step
    found = []
    way = tuple(sorted(digits.items()))
    for symbol, apart in digits.items():
        most = 0
        if symbol.startswith("%tid."):
            most = values[f"threads:{symbol[-1]}"]
        elif symbol.startswith("%ctaid."):
            most = values[f"blocks:{symbol[-1]}"]
        if apart < 0:
            # A negative distance counts from the other end.
            if not most:
                return None
            start += apart * (most - 1)
        if apart:
            found.append((abs(apart), most))
    return _Reach(
        roots[0],
        start,
        tuple(sorted(found, key=lambda digit: (digit[0], digit[1] == 0))),
        way,
        site,
        thread,
    )


def _are_apart(reaches: Sequence[_Reach], dimensions: int) -> bool:
    """Whether no two threads reach the same byte; `dimensions` counts the varying indices."""
    if all(each.site.is_strong for each in reaches):
        return True
    digits = reaches[0].digits
    if any(each.way != reaches[0].way for each in reaches):
        return False
    if sum(most > 0 for _, most in digits) < dimensions:
        return False
    starts = sorted({each.start for each in reaches})
    size = max(each.site.size for each in reaches)
    rows = [*digits]
    if len(starts) > 1:
        steps = {after - before for before, after in pairwise(starts)}
        if len(steps) > 1:
            # Irregular offsets count as one larger access.
            size += starts[-1] - starts[0]
        else:
            rows.append((steps.pop(), len(starts)))
            rows.sort(key=lambda digit: (digit[0], digit[1] == 0))
    taken = size
    for index, (apart, most) in enumerate(rows):
        if apart < taken or (not most and index + 1 < len(rows)):
            return False
        taken = apart * most
    return True
