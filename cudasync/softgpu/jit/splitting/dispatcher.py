"""Cellar, jit. The function that calls the pieces of a split function, one after the other.

It has the name and the arguments of the whole function. Beside the calls it has the code around the
nodes of a whole function: where a warp begins, resumes after a suspension point, and ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.kernel_abi.job_record import Field, read_field
from cudasync.softgpu.jit.splitting.context import named_in
from cudasync.softgpu.jit.splitting.piece_text import (
    END,
    STOPPED,
    label_of,
    labels_outside,
    loosely_aligned,
    piece_arguments,
    places_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudasync.softgpu.jit.splitting.context import Context
    from cudasync.softgpu.jit.splitting.pieces import Piece
    from cudasync.softgpu.jit.vector_ir.builder import Builder


class Dispatcher:
    """The text of a dispatcher; `Control.emit_dispatcher` writes the code before the calls."""

    def __init__(self, builder: Builder, pieces: Sequence[Piece], names: Sequence[str]) -> None:
        """`names` are the names of the pieces' functions."""
        self._builder = builder
        self._pieces = pieces
        self._names = names

    def named(self) -> set[str]:
        """The slots that the dispatcher names."""
        return named_in(self._builder.lines)

    def leads_to(self) -> set[int]:
        """The places at which the dispatcher may start."""
        return places_in(labels_outside(self._builder.lines))

    def begin(self, *, has_fuel: bool) -> None:
        """Write the entry: make the state that all pieces share, and clear all waiting masks."""
        builder = self._builder
        mask = builder.vector_type("i1")
        builder.allocations += [
            "  %fuel = alloca i64",
            "  %patience = alloca i32",
            f"  %carry = alloca {mask}",
            "  %code = alloca i32",
        ]
        builder.emit(f"store {mask} zeroinitializer, ptr %carry")
        if has_fuel:
            builder.emit(f"store i64 {read_field(builder, Field.BUDGET_LEFT)}, ptr %fuel")
        self._clear("%mask.bytes")

    def begin_anew(self) -> None:
        """Write the start of a new warp: registers that may be read before a write are zero."""
        self._clear("%zeroed.bytes")

    def _clear(self, size: str) -> None:
        self._builder.emit(
            f"call void @llvm.memset.p0.i64(ptr %context, i8 0, i64 {size}, i1 false)"
        )

    def body(
        self, context: Context, places: Iterable[int], *, frame_bytes: int | None, arguments: int
    ) -> list[str]:
        """The lines of the function. A kernel's context is in the frame behind `frame_bytes`."""
        builder = self._builder
        if frame_bytes is None:
            own = f"  %context = alloca [{max(context.size, 1)} x i8], align 64"
        else:
            own = f"  %context = getelementptr i8, ptr %frame, i64 {frame_bytes}"
        slots = [
            f"  {each} = {context.where(each)}"
            for each in sorted(self.named())
            if each in context.places
        ]
        firsts = sorted(self.leads_to())
        ways = [f"[{each}, %{label_of(each)}]" for each in firsts]
        lines = loosely_aligned(builder.lines, context)
        for each in firsts:
            lines += [f"{label_of(each)}:", "  br label %dispatch"]
        pieces = {
            each: number
            for each in places
            for number, piece in enumerate(self._pieces)
            if each // 2 in piece
        }
        cases = " ".join(f"i32 {each}, label %piece.{n}" for each, n in sorted(pieces.items()))
        lines += [
            "dispatch:",
            f"  %place = phi i32 {', '.join([*ways, '[%onward, %returned]'])}",
            f"  switch i32 %place, label %nowhere [{cases}]",
        ]
        called = sorted(set(pieces.values()))
        every = piece_arguments(builder.lanes, arguments)
        given = ", ".join(f"{type_.split()[0]} {name}" for type_, name in every)
        for number in called:
            lines += [
                f"piece.{number}:",
                f"  %onward.{number} = call i32 {self._names[number]}({given})",
                "  br label %returned",
            ]
        ways = [f"[%onward.{number}, %piece.{number}]" for number in called]
        lines += [
            "returned:",
            f"  %onward = phi i32 {', '.join(ways)}",
            "  %goes.on = icmp sge i32 %onward, 0",
            "  br i1 %goes.on, label %dispatch, label %left",
            "left:",
            f"  switch i32 %onward, label %fault [i32 {STOPPED}, label %stopped "
            f"i32 {END}, label %end]",
            "nowhere:",
            "  unreachable",
        ]
        return [
            "entry:",
            *builder.allocations,
            own,
            f"  %mask.bytes = add i64 0, {context.mask_bytes}",
            f"  %zeroed.bytes = add i64 0, {context.zeroed_bytes}",
            *slots,
            *lines,
            "}",
        ]
