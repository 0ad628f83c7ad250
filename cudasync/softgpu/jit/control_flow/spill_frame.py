"""Cellar, jit. The frame of a warp, in the block's scratch: its state between two calls.

A frame begins with a word that has a bit for the number of each barrier at which lanes wait. One
mask of held lanes for each suspension point follows, if masks are needed. Behind the masks each
register that is live at some suspension point has its place. Registers that are never live at the
same suspension point may share a place.

Codes: 0 starts a warp. The code of a suspension point resumes the warp there with all lanes
together. HELD resumes lanes at the suspension points that held them.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from cudasync.softgpu.jit.kernel_abi.barrier_operands import number_and_count
from cudasync.softgpu.jit.kernel_abi.job_record import AT_BARRIER, BARRIERS, HELD
from cudasync.softgpu.jit.synchronisation.named_barriers import emit_agreement
from cudasync.softgpu.jit.vector_ir.lane_masks import (
    NOBODY,
    load_mask,
    mask_bits,
    mask_word,
    merge_mask,
    new_mask,
    store_mask,
)
from cudasync.softgpu.jit.vector_ir.lowering_context import index_slot, lift_slots, slot
from cudasync.softgpu.jit.vector_ir.mask_vectors import flags_of
from cudasync.softgpu.jit.vector_ir.uniformity import Kind
from cudasync.softgpu.jit.vector_ir.values import bits_of, llvm_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.jit.analysis.grid_stride_loops import Pace
    from cudasync.softgpu.jit.analysis.reconvergence_order import Flow
    from cudasync.softgpu.jit.analysis.suspension_points import Stop
    from cudasync.softgpu.jit.block_loop.parallel_regions import Segment
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering

_ALIGNMENT = 64


class Frame:
    """The layout of a kernel's frames, and the code that writes and reads them."""

    size: int
    numbered: dict[int, int]
    _live: dict[int, list[str]]
    _places: dict[str, int]

    def __init__(
        self,
        lowering: Lowering,
        flow: Flow,
        stops: tuple[Stop, ...],
        held: list[Stop],
        numbers: dict[int, int | None],
        paces: Sequence[Pace] = (),
        slots: frozenset[int] = frozenset(),
        like: Frame | None = None,
        *,
        is_split: bool = False,
    ) -> None:
        """If the function `is_split`, its registers are not kept here but in `splitting.context`;
        masks and numbers then begin the frame."""
        self._lowering = lowering
        self._is_split = is_split
        # If barriers are named, the number of each by its code; None if a register holds it.
        self.numbers = numbers
        self._builder = lowering.builder
        # The types of predicates: in registers; and in the frame, as integers like masks.
        self._flags = self._builder.vector_type("i1")
        self._mask_type = f"i{self._builder.lanes}"
        self._stops = stops
        self._exit = flow.exit
        self._held = held
        # The nodes at which lanes may wait, in the whole kernel.
        self._slots = slots
        if like is not None:
            self._live, self._places, self.size = like._live, like._places, like.size
            self.numbered = like.numbered
            return
        self._live = {
            stop.code: [] if is_split else sorted(flow.live_in(stop.continuation)) for stop in stops
        }
        # Masks of held lanes have places only in kernels that read them.
        header = 4 * (len(stops) + 1) if held or numbers else 0
        # For barriers with a number in a register, by code: the place of its bit, then its count.
        named = [code for code, number in numbers.items() if number is None]
        self.numbered = {code: header + 8 * n for n, code in enumerate(named)}
        header += 8 * len(named)
        registers = [*self._live.values(), self._held_registers(), *(each.live for each in paces)]
        sizes = {
            name: [(place, size) for place, _, size in self._parts(name)]
            for name in sorted(set().union(*registers))
        }
        masks = {place: [(place, 4)] for each in paces for place in self._masks(each).values()}
        sizes |= masks
        together = [*registers, *([*each.live, *self._masks(each).values()] for each in paces)]
        self._places, end = lay_out(sizes, together, header)
        self.size = -(-end // _ALIGNMENT) * _ALIGNMENT if stops or paces else 0

    def _parts(self, name: str) -> Iterator[tuple[str, str, int]]:
        """The stack slots of a register, with LLVM type and size in bytes."""
        lowering, builder = self._lowering, self._builder
        register = lowering.function.registers[name]
        type_ = llvm_type(register.type)
        shape = lowering.shapes[name]
        size = -(-bits_of(type_) // 8)
        if shape.is_varying:
            yield slot(name), builder.vector_type(type_), size * builder.lanes
            return
        yield slot(name), type_, size
        if shape.scale:
            if shape.stride:
                yield index_slot(name), "i32", 4
            else:
                yield index_slot(name), builder.vector_type("i32"), 4 * builder.lanes
        if shape.kind is Kind.LIFTED:
            amount, lanes = lift_slots(name)
            yield amount, type_, size
            yield lanes, self._mask_type, 4

    def load_for(self, segment: Segment) -> None:
        """Load the registers and masks that a segment needs from the frame."""
        self._load(segment.loaded)
        builder = self._builder
        for place in self._masks(segment.pace).values() if segment.pace is not None else ():
            saved = builder.name(f"getelementptr i8, ptr %frame, i64 {self._places[place]}")
            bits = builder.name(f"load i{builder.lanes}, ptr {saved}, align 4")
            store_mask(builder, flags_of(builder, bits), place)

    def emit_pace(self, pace: Pace, segment: Segment, emit_return: Callable[[str], None]) -> None:
        """Save and return, between two trips or before the first."""
        builder = self._builder
        self._store(segment.stored[pace.code])
        for node, place in self._masks(pace).items():
            saved = builder.name(f"getelementptr i8, ptr %frame, i64 {self._places[place]}")
            bits = "0"
            if node in segment.nodes:
                bits = mask_bits(builder, load_mask(builder, place))
            builder.emit(f"store i{builder.lanes} {bits}, ptr {saved}, align 4")
        emit_return(str(pace.code))

    def emit_entry(self, first: str) -> None:
        """Begin at the node `first`, or where the warp was suspended."""
        builder = self._builder
        for stop in self._held if not self._is_split else ():
            new_mask(builder, f"%held.{stop.code}")
        if not self._stops:
            builder.emit(f"br label %{first}")
            return
        cases = [
            f"i32 {stop.code}, label %resume.{stop.code}"
            for stop in self._stops
            if stop not in self._held
        ]
        if self._held:
            cases.append(f"i32 {HELD}, label %resume.held")
        builder.emit(f"switch i32 %resume, label %{first} [{' '.join(cases)}]")

    def emit_resumes(
        self,
        enter_together: Callable[[int], None],
        finish: Callable[[Stop, str], None],
        dispatch: str,
    ) -> None:
        """The code behind each case of the entry.

        `finish` emits the end of a suspension for the lanes of a mask; `dispatch` is the label of
        the search for waiting lanes.
        """
        builder = self._builder
        for stop in self._stops:
            if stop not in self._held:
                builder.label(f"resume.{stop.code}")
                self._load(self._live[stop.code])
                finish(stop, "%active")
                enter_together(stop.continuation)
        if not self._held:
            return
        builder.label("resume.held")
        self._load(self._held_registers())
        for stop in self._held:
            bit = self._bit(stop) if stop.code in self.numbers else "-1"
            opened = builder.name(f"and i32 %release, {bit}")
            is_released = builder.name(f"icmp ne i32 {opened}, 0")
            bits = builder.name(f"load i{builder.lanes}, ptr {self._mask_place(stop)}, align 2")
            kept = NOBODY
            if stop.is_barrier:
                none, all_of = f"{self._mask_type} 0", f"{self._mask_type} {bits}"
                staying = builder.name(f"select i1 {is_released}, {none}, {all_of}")
                kept = flags_of(builder, staying)
                bits = builder.name(f"select i1 {is_released}, {all_of}, {none}")
            held = flags_of(builder, bits)
            store_mask(builder, kept, f"%held.{stop.code}")
            finish(stop, held)
            if stop.continuation != self._exit:
                merge_mask(builder, held, f"%wait.{stop.continuation}")
        builder.emit(f"br label %{dispatch}")

    def emit_gathered(
        self, stop: Stop, emit_return: Callable[[str], None], segment: Segment | None
    ) -> None:
        """All lanes are at `stop`: save and return."""
        if segment is not None:
            self._store(segment.stored[stop.code])
            emit_return(str(stop.code))
            return
        self._store(self._live[stop.code])
        if self.numbers:
            self._note({stop.code: "%active"})
        emit_return(str(stop.code | AT_BARRIER if stop.is_barrier else stop.code))

    def emit_hold(self, stop: Stop, mask: str) -> None:
        """The lanes of `mask` stay at `stop` while others go on."""
        merge_mask(self._builder, mask, f"%held.{stop.code}")

    def emit_held(self, emit_return: Callable[[str], None]) -> None:
        """No lane can go on: if some are held, save and return; else fall through."""
        builder = self._builder
        every = spinning = "0"
        masks: list[tuple[Stop, str]] = []
        for stop in self._held:
            mask = load_mask(builder, f"%held.{stop.code}")
            masks.append((stop, mask))
            bits = mask_bits(builder, mask)
            every = builder.name(f"or {self._mask_type} {every}, {bits}")
            if not stop.is_barrier:
                spinning = builder.name(f"or {self._mask_type} {spinning}, {bits}")
        is_any = builder.name(f"icmp ne {self._mask_type} {every}, 0")
        builder.emit(f"br i1 {is_any}, label %held, label %all.done")
        builder.label("held")
        self._note({stop.code: mask for stop, mask in masks})
        self._store(self._held_registers())
        is_spinning = builder.name(f"icmp ne {self._mask_type} {spinning}, 0")
        code = builder.name(f"select i1 {is_spinning}, i32 {HELD}, i32 {HELD | AT_BARRIER}")
        emit_return(code)
        builder.label("all.done")

    def _note(self, masks: dict[int, str]) -> None:
        """Store the mask of held lanes for the code of each suspension point; 0 for the rest."""
        builder = self._builder
        waited = "0"
        for stop in self._stops:
            mask = masks.get(stop.code)
            word = mask_word(builder, mask) if mask else "0"
            builder.emit(f"store i32 {word}, ptr {self._mask_place(stop)}, align 4")
            if mask and stop.code in self.numbers:
                is_any = builder.name(f"icmp ne i32 {word}, 0")
                bit = self._bit(stop)
                here = builder.name(f"select i1 {is_any}, i32 {bit}, i32 0")
                waited = builder.name(f"or i32 {waited}, {here}")
        builder.emit(f"store i32 {waited}, ptr %frame, align 4")

    def _bit(self, stop: Stop) -> str:
        """The bit for the number of the barrier at `stop`."""
        number = self.numbers[stop.code]
        if number is not None:
            return str(1 << number)
        return self._builder.name(f"load i32, ptr {self._numbered_at(stop)}")

    def _numbered_at(self, stop: Stop, offset: int = 0) -> str:
        place = self.numbered[stop.code] + offset
        return self._builder.name(f"getelementptr i8, ptr %frame, i64 {place}")

    def emit_number(self, stop: Stop, instruction: Instruction, held: str) -> None:
        """Keep the barrier's number, if a register holds it; `held` is the mask of lanes there."""
        if stop.code not in self.numbered:
            return
        builder, lowering = self._builder, self._lowering
        number, count = number_and_count(lowering, instruction)
        bit = builder.name(f"shl i32 1, {builder.name(f'and i32 {number.text}, {BARRIERS - 1}')}")
        place, behind = self._numbered_at(stop), self._numbered_at(stop, 4)
        other = builder.name(f"icmp ne i32 {builder.name(f'load i32, ptr {place}')}, {bit}")
        is_some = builder.name(f"icmp ne {self._mask_type} {held}, 0")
        differs = builder.name(f"and i1 {is_some}, {other}")
        emit_agreement(lowering, instruction, number, count, differs)
        builder.emit(f"store i32 {bit}, ptr {place}")
        builder.emit(f"store i32 {count.text}, ptr {behind}")

    def number_and_count(self, stop: Stop, instruction: Instruction) -> tuple[str, str]:
        """Number and count of the barrier that lanes have just passed, as i64."""
        builder = self._builder
        if stop.code not in self.numbered:
            number, count = number_and_count(self._lowering, instruction)
            return number.text, count.text
        bit = builder.name(f"load i32, ptr {self._numbered_at(stop)}")
        builder.declarations.add("declare i32 @llvm.cttz.i32(i32, i1)")
        number_text = builder.name(f"call i32 @llvm.cttz.i32(i32 {bit}, i1 false)")
        count_text = builder.name(f"load i32, ptr {self._numbered_at(stop, 4)}")
        return (
            builder.name(f"zext i32 {number_text} to i64"),
            builder.name(f"zext i32 {count_text} to i64"),
        )

    def _masks(self, pace: Pace) -> dict[int, str]:
        """The masks that a warp keeps when it is suspended before a loop, by node."""
        nodes = (pace.header, *pace.others)
        return {node: f"%wait.{node}" for node in nodes if node in self._slots}

    def _held_registers(self) -> list[str]:
        return sorted({name for stop in self._held for name in self._live[stop.code]})

    def _mask_place(self, stop: Stop) -> str:
        return self._builder.name(f"getelementptr i8, ptr %frame, i64 {4 * stop.code}")

    def _store(self, names: Iterable[str]) -> None:
        builder = self._builder
        for place, saved, type_ in self._saved(names):
            held = builder.name(f"load {type_}, ptr {place}, align 4")
            if type_ == self._flags:
                held, type_ = mask_bits(builder, held), self._mask_type
            builder.emit(f"store {type_} {held}, ptr {saved}, align 4")

    def _load(self, names: Iterable[str]) -> None:
        builder = self._builder
        for place, saved, type_ in self._saved(names):
            is_flags = type_ == self._flags
            held = builder.name(
                f"load {self._mask_type if is_flags else type_}, ptr {saved}, align 4"
            )
            if is_flags:
                held = flags_of(builder, held)
            builder.emit(f"store {type_} {held}, ptr {place}, align 4")

    def _saved(self, names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
        """For each part of the registers: its slot, its place in the frame, and its type."""
        for name in names:
            for place, type_, _ in self._parts(name):
                at = f"getelementptr i8, ptr %frame, i64 {self._places[place]}"
                yield place, self._builder.name(at), type_


def lay_out(
    sizes: Mapping[str, Sequence[tuple[str, int]]], together: Iterable[Iterable[str]], start: int
) -> tuple[dict[str, int], int]:
    """An offset for each slot from `start` on, and the end of all.

    `sizes` has the slots of each register with their bytes. Registers that are anywhere live
    `together` do not overlap. Frames are small so that those of all warps stay in the cache.
    """
    neighbours: dict[str, set[str]] = {name: set() for name in sizes}
    for names in map(list, together):
        for name in names:
            neighbours[name].update(names)
    places: dict[str, int] = {}
    ranges: dict[str, list[tuple[int, int]]] = {}
    end = start
    large_first = sorted(sizes, key=lambda name: -max(size for _, size in sizes[name]))
    for name in large_first:
        around = neighbours[name]
        taken = sorted(each for other in around & ranges.keys() for each in ranges[other])
        own = ranges[name] = []
        for slot_, size in sizes[name]:
            step = min(_ALIGNMENT, 1 << (size - 1).bit_length())
            offset = -(-start // step) * step
            for first, behind in taken:
                if first >= offset + size:
                    break
                if behind > offset:
                    offset = -(-behind // step) * step
            places[slot_] = offset
            insort(taken, (offset, offset + size))
            own.append((offset, offset + size))
            end = max(end, offset + size)
    return places, end
