"""Cellar, jit. What a warp keeps between two calls: its frame, in the scratch of the block.

A frame begins with a word that has a bit for each number of a barrier that lanes wait at, then one
mask of held lanes for each stop; both are kept only where they are needed. Behind them each
register that is live at some stop has its place.

Codes: 0 starts a warp; a stop's code resumes it there with all lanes together; HELD resumes lanes
at the stops where they were held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.faults import mask_bits, mask_word
from cudasync.softgpu.jit.lowering import index_slot, slot
from cudasync.softgpu.jit.shapes import Kind
from cudasync.softgpu.jit.values import bits_of, llvm_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudasync.softgpu.jit.flow import Flow
    from cudasync.softgpu.jit.lowering import Lowering
    from cudasync.softgpu.jit.stops import Stop

DONE = -1
FAILED = -2
HELD = 1 << 20
# Set in what a warp returns if all its lanes wait at barriers, none for memory.
AT_BARRIER = 1 << 24
_ALIGNMENT = 64


class Frame:
    """The layout of a kernel's frames, and the code that fills and reads them."""

    def __init__(
        self,
        lowering: Lowering,
        flow: Flow,
        stops: tuple[Stop, ...],
        held: list[Stop],
        numbers: dict[int, int],
    ) -> None:
        self._lowering = lowering
        # The number of each barrier by its code, if barriers are named.
        self._numbers = numbers
        self._builder = lowering.builder
        self._stops = stops
        self._exit = flow.exit
        self._held = held
        self._live = {stop.code: sorted(flow.live_in[stop.continuation]) for stop in stops}
        self._mask_type = self._builder.vector_type("i1")
        end = 4 * (len(stops) + 1)
        self._places: dict[str, int] = {}
        for names in self._live.values():
            for name in names:
                for place, _, size in self._parts(name):
                    if place not in self._places:
                        end = -(-end // _ALIGNMENT) * _ALIGNMENT
                        self._places[place] = end
                        end += size
        self.size = -(-end // _ALIGNMENT) * _ALIGNMENT if stops else 0

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
        if shape.kind is Kind.WIDE:
            if shape.stride:
                yield index_slot(name), "i32", 4
            else:
                yield index_slot(name), builder.vector_type("i32"), 4 * builder.lanes

    def emit_entry(self, first: str) -> None:
        """Begin at the node `first`, or where the warp stopped."""
        builder = self._builder
        for stop in self._held:
            builder.allocations.append(f"  %held.{stop.code} = alloca {self._mask_type}")
            builder.emit(f"store {self._mask_type} zeroinitializer, ptr %held.{stop.code}")
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

        `finish` does what a stop does when it is over, for the lanes of a mask; `dispatch` looks
        for lanes that wait.
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
            bit = 1 << self._numbers[stop.code] if stop.code in self._numbers else -1
            opened = builder.name(f"and i32 %release, {bit}")
            is_released = builder.name(f"icmp ne i32 {opened}, 0")
            bits = builder.name(f"load i{builder.lanes}, ptr {self._mask_place(stop)}, align 2")
            held = builder.name(f"bitcast i{builder.lanes} {bits} to {self._mask_type}")
            kept = "zeroinitializer"
            if stop.is_barrier:
                none = f"{self._mask_type} zeroinitializer"
                all_of = f"{self._mask_type} {held}"
                kept = builder.name(f"select i1 {is_released}, {none}, {all_of}")
                held = builder.name(f"select i1 {is_released}, {all_of}, {none}")
            builder.emit(f"store {self._mask_type} {kept}, ptr %held.{stop.code}")
            finish(stop, held)
            if stop.continuation != self._exit:
                self._merge(f"%wait.{stop.continuation}", held)
        builder.emit(f"br label %{dispatch}")

    def emit_gathered(self, stop: Stop, emit_return: Callable[[str], None]) -> None:
        """All lanes are at `stop`: save and return."""
        self._store(self._live[stop.code])
        if self._numbers:
            self._note({stop.code: "%active"})
        emit_return(str(stop.code | AT_BARRIER if stop.is_barrier else stop.code))

    def emit_hold(self, stop: Stop, mask: str) -> None:
        """The lanes of `mask` stay at `stop` while others go on."""
        self._merge(f"%held.{stop.code}", mask)

    def emit_held(self, emit_return: Callable[[str], None]) -> None:
        """No lane can go on: if some are held, save and return; else fall through."""
        builder = self._builder
        every, spinning = "zeroinitializer", "zeroinitializer"
        masks: list[tuple[Stop, str]] = []
        for stop in self._held:
            mask = builder.name(f"load {self._mask_type}, ptr %held.{stop.code}")
            masks.append((stop, mask))
            every = builder.name(f"or {self._mask_type} {every}, {mask}")
            if not stop.is_barrier:
                spinning = builder.name(f"or {self._mask_type} {spinning}, {mask}")
        is_any = builder.name(f"icmp ne i{builder.lanes} {mask_bits(builder, every)}, 0")
        builder.emit(f"br i1 {is_any}, label %held, label %all.done")
        builder.label("held")
        self._note({stop.code: mask for stop, mask in masks})
        self._store(self._held_registers())
        is_spinning = builder.name(f"icmp ne i{builder.lanes} {mask_bits(builder, spinning)}, 0")
        code = builder.name(f"select i1 {is_spinning}, i32 {HELD}, i32 {HELD | AT_BARRIER}")
        emit_return(code)
        builder.label("all.done")

    def _note(self, masks: dict[int, str]) -> None:
        """Keep who waits where: a mask by the code of each stop, none at others."""
        builder = self._builder
        waited = "0"
        for stop in self._stops:
            mask = masks.get(stop.code)
            word = mask_word(builder, mask) if mask else "0"
            builder.emit(f"store i32 {word}, ptr {self._mask_place(stop)}, align 4")
            if mask and stop.code in self._numbers:
                is_any = builder.name(f"icmp ne i32 {word}, 0")
                bit = 1 << self._numbers[stop.code]
                here = builder.name(f"select i1 {is_any}, i32 {bit}, i32 0")
                waited = builder.name(f"or i32 {waited}, {here}")
        builder.emit(f"store i32 {waited}, ptr %frame, align 4")

    def _held_registers(self) -> list[str]:
        return sorted({name for stop in self._held for name in self._live[stop.code]})

    def _mask_place(self, stop: Stop) -> str:
        return self._builder.name(f"getelementptr i8, ptr %frame, i64 {4 * stop.code}")

    def _merge(self, place: str, mask: str) -> None:
        builder = self._builder
        before = builder.name(f"load {self._mask_type}, ptr {place}")
        after = builder.name(f"or {self._mask_type} {before}, {mask}")
        builder.emit(f"store {self._mask_type} {after}, ptr {place}")

    def _store(self, names: list[str]) -> None:
        self._move(names, lambda place, saved, type_: (type_, place, saved))

    def _load(self, names: list[str]) -> None:
        self._move(names, lambda place, saved, type_: (type_, saved, place))

    def _move(
        self, names: list[str], direction: Callable[[str, str, str], tuple[str, str, str]]
    ) -> None:
        builder = self._builder
        for name in names:
            for place, type_, _ in self._parts(name):
                offset = self._places[place]
                saved = builder.name(f"getelementptr i8, ptr %frame, i64 {offset}")
                held, source, target = direction(place, saved, type_)
                text = builder.name(f"load {held}, ptr {source}, align 4")
                builder.emit(f"store {held} {text}, ptr {target}, align 4")
