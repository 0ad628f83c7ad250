"""Cellar, jit. Finds accesses to shared memory that cannot race, in blocks of a known shape.

Suppose that all warps of a block always reach the same barriers. Then code between two barriers, a
*barrier interval*, is concurrent only with other threads' code between the same two. Barriers order
it with all other code. An access cannot race if, in each interval that contains it, no other thread
reaches its bytes, or neither of the two writes them, or both are strong.

Which threads reach which bytes is counted out, thread by thread (`thread_values`). A thread that
fails a guard or leaves at a branch is not counted behind it. An access with an unknown address may
be to any byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from cudasync.ptx.ir import Address
from cudasync.ptx.thread_values import ThreadValues, reaching
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.interface.race_records import is_strong
from cudasync.softgpu.jit.analysis.block_uniformity import is_together
from cudasync.softgpu.jit.analysis.reconvergence_order import Flow
from cudasync.softgpu.jit.transforms.suspending_functions import has_named_barriers, is_barrier

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cudasync.ptx.ir import Function, Instruction
    from cudasync.ptx.thread_values import Value

_READS: Final = frozenset({"ld", "ldu", "ldmatrix"})
_WRITES: Final = frozenset({"st", "atom", "red", "stmatrix"})
# The operand with the address, of instructions whose bytes the address and the type show.
_PLACES: Final = {"ld": 1, "ldu": 1, "st": 0, "atom": 1, "red": 0}
_NEAR: Final = (StateSpace.SHARED, StateSpace.GENERIC)
# Bytes of one interval, over all threads and accesses, that are counted out.
_MOST_BYTES: Final = 1 << 19


class _Kind(NamedTuple):
    """Accesses whose addresses have the same symbols, or are not known, and that do the same."""

    symbols: object
    is_write: bool
    is_strong: bool

    def conflicts(self, other: _Kind) -> bool:
        """Whether two such accesses race if different threads reach one byte."""
        return (self.is_write or other.is_write) and not (self.is_strong and other.is_strong)

    def is_comparable(self, other: _Kind) -> bool:
        """Whether the distance of two such accesses is known."""
        return self.symbols is not None and self.symbols == other.symbols


@dataclass(frozen=True, slots=True)
class _Access:
    """An access in one interval; `threads` are those that may come to it, as bits."""

    position: int
    threads: int
    kind: _Kind
    size: int
    address: Value | None


def race_free_accesses(
    kernel: Function, block: tuple[int, int, int], shared: Mapping[str, int]
) -> tuple[int, ...]:
    """The positions of accesses to shared memory that need no race check in such blocks.

    `shared` has the places of variables in the block's shared memory.
    """
    body = kernel.body
    near = [position for position, each in enumerate(body) if _is_near(each)]
    # Asynchronous copies continue past barriers.
    if not near or any(each.opcode == "cp" for each in body) or has_named_barriers(kernel):
        return ()
    flow = Flow(kernel, is_barrier)
    barriers = {node.end - 1 for node in flow.nodes if is_barrier(flow.last(node.index))}
    if not is_together(flow, barriers):
        return ()
    values = ThreadValues(kernel, block, shared)
    racing: set[int] = set()
    behind = [flow.nodes[node].successors for node in _ending(flow, barriers)]
    for entry in {0, *(node for successors in behind for node in successors)} - {flow.exit}:
        racing |= _racing(list(_interval(flow, entry, barriers, values)), values)
    return tuple(position for position in near if position not in racing)


def _is_near(each: Instruction) -> bool:
    is_access = any(isinstance(operand, Address) for operand in each.operands)
    return is_access and each.space in _NEAR


def _ending(flow: Flow, barriers: set[int]) -> list[int]:
    return [node.index for node in flow.nodes if node.end - 1 in barriers]


def _interval(
    flow: Flow, entry: int, barriers: set[int], values: ThreadValues
) -> Iterator[_Access]:
    """The accesses from the node `entry` up to the next barriers."""

    def onward(index: int) -> Iterator[tuple[int, int]]:
        node, last = flow.nodes[index], flow.last(index)
        if node.end - 1 not in barriers or last.guard is not None:
            yield from values.onward(last, node.successors, flow.starting_at(node.end))

    body = flow.function.body
    for index, those in reaching(entry, flow.exit, onward, values.everybody).items():
        for position in range(flow.nodes[index].start, flow.nodes[index].end):
            if _is_near(body[position]):
                yield _access(body[position], position, those, values)


def _access(each: Instruction, position: int, threads: int, values: ThreadValues) -> _Access:
    is_known = each.space is StateSpace.SHARED and "async" not in each.modifiers
    place = _PLACES.get(each.opcode) if is_known else None
    address = None if place is None else values.address(each.operands[place])
    is_store = each.opcode == "wmma" and "store" in each.modifiers
    is_plain = each.opcode in (*_READS, *_WRITES, "wmma")
    return _Access(
        position,
        threads & values.threads(each.guard),
        _Kind(
            None if address is None else address.symbols,
            is_store or each.opcode in _WRITES,
            # Operations on mbarriers and the like are atomic.
            is_strong(each) or not is_plain,
        ),
        each.type.size * each.vector_size if each.types else 0,
        address,
    )


def _racing(interval: Sequence[_Access], values: ThreadValues) -> set[int]:
    """The positions of accesses that may race with one of another thread."""
    accesses = [each for each in interval if each.threads]
    kinds = {each.kind for each in accesses}
    rivals = [(one, other) for one in kinds for other in kinds if one.conflicts(other)]
    if not rivals:
        return set()
    known = [each for each in accesses if each.address is not None]
    if sum(each.size * each.threads.bit_count() for each in known) > _MOST_BYTES:
        return {each.position for each in accesses}
    apart = {kind for pair in rivals if not pair[0].is_comparable(pair[1]) for kind in pair}
    found = {each.position for each in accesses if each.kind in apart} | _sharing(known, values)
    # Strong accesses order the plain accesses that are compared.
    return found | {each.position for each in accesses if each.kind.is_strong and found}


_SEVERAL: Final = -1


def _sharing(accesses: Sequence[_Access], values: ThreadValues) -> set[int]:
    """The positions of accesses whose bytes another thread reaches by an access that conflicts."""
    # Most accesses are to whole words.
    step = 4 if all(_is_aligned(each) for each in accesses) else 1
    reached = [(each, list(_parts(each, step, values))) for each in accesses]
    # For each kind of access and each part of memory: the one thread that reaches it, if it is one.
    users: dict[_Kind, dict[int, int]] = {}
    for each, parts in reached:
        of_kind = users.setdefault(each.kind, {})
        for part, thread in parts:
            if of_kind.setdefault(part, thread) != thread:
                of_kind[part] = _SEVERAL
    return {
        each.position
        for each, parts in reached
        for kind, of_kind in users.items()
        if kind.is_comparable(each.kind)
        and kind.conflicts(each.kind)
        and any(of_kind.get(part, thread) != thread for part, thread in parts)
    }


def _is_aligned(each: _Access) -> bool:
    assert each.address is not None
    numbers = each.address.numbers
    return each.size % 4 == 0 and not any(
        number % 4 for number in (numbers if isinstance(numbers, tuple) else (numbers,))
    )


def _parts(each: _Access, step: int, values: ThreadValues) -> Iterator[tuple[int, int]]:
    """The parts of memory that an access reaches, `step` bytes long, and by which thread."""
    assert each.address is not None
    for thread, start in enumerate(values.by_thread(each.address)):
        if each.threads >> thread & 1:
            for byte in range(start, start + each.size, step):
                yield (byte & 0xFFFFFFFF) // step, thread
