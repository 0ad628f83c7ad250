"""Cellar, jit. Writes a piece of a function as an LLVM function of its own.

A piece is called with the place where it begins. It returns the place where the function goes on,
or one of the codes below. A place is twice the number of a node, plus one if the code must first
check whether lanes wait there. A jump to a label outside the piece is a return from it.

In a piece with a loop, shared registers have stack slots of their own, which LLVM turns into
values. The piece loads them from the context at its start and stores them back at its end. Without
a loop each shared register is accessed in memory.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudasync.softgpu.jit.block_loop.warp_loop import warp_arguments
from cudasync.softgpu.jit.splitting.context import NAMES, named_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudasync.softgpu.jit.splitting.context import Context
    from cudasync.softgpu.jit.splitting.pieces import Piece
    from cudasync.softgpu.jit.vector_ir.builder import Builder

# The function returns the code stored in `%code`; no lane can go on; a fault was reported.
STOPPED, END, FAULT = -1, -2, -3
_LEAVING = {"stopped": STOPPED, "end": END, "fault": FAULT}
# Arguments of a piece beside those of its function: the context of shared registers, the state
# that the dispatcher keeps for all pieces, and the place.
_MORE = [
    ("ptr noalias", "%context"),
    ("ptr noalias", "%fuel"),
    ("ptr noalias", "%patience"),
    ("ptr noalias", "%carry"),
    ("ptr noalias", "%code"),
    ("i32", "%place"),
]
_TARGETS = re.compile(r"label %((?:node|check)\.\d+|end|fault|stopped)(?![\w.])")
_PLACES = re.compile(r"(node|check)\.(\d+)")


class PieceText:
    """The code of a piece around its nodes."""

    # The interface of `SegmentText`: a piece is no segment.
    segment = None
    paces = ()

    def __init__(self, builder: Builder, piece: Piece) -> None:
        self.piece = piece
        self._builder = builder
        # The line at which the code of its nodes begins.
        self._begins = 0

    def begin(self) -> None:
        """Mark the start of the code of its nodes."""
        self._begins = len(self._builder.lines)

    def emit_return(self, code: str) -> None:
        """Return from the function here, with this code."""
        self._builder.emit(f"store i32 {code}, ptr %code")
        self._builder.emit("br label %stopped")

    def named(self) -> set[str]:
        """The slots that the piece names."""
        return named_in(self._builder.lines)

    def leads_to(self) -> set[int]:
        """The places to which the piece may return control."""
        return places_in(self._outside())

    def goes_back(self) -> bool:
        """Whether the piece jumps to a node before it."""
        return any(each // 2 < self.piece.first for each in self.leads_to())

    def _outside(self) -> list[str]:
        """The labels that are outside the piece."""
        return labels_outside(self._builder.lines)

    def body(self, context: Context, places: Iterable[int]) -> list[str]:
        """The lines of the function, which may begin at these places."""
        builder, own = self._builder, self.piece.has_loops
        names = sorted(self.named())
        registers = [each for each in names if each in context.places and each.startswith('%"')]
        local = [each for each in names if each not in context.places]
        copied = registers if own else []
        entry = [
            f"  {each} = {context.where(each)}"
            for each in names
            if each in context.places and each not in copied
        ]
        for each in local:
            type_, nothing = context.type_of(each), context.nothing_in(each)
            entry += [f"  {each} = alloca {type_}", f"  store {type_} {nothing}, ptr {each}"]
        # Values and labels share their names: no label of a branch begins with these words.
        for number, each in enumerate(copied):
            type_ = context.type_of(each)
            entry += [
                f"  {each} = alloca {type_}",
                f"  %shared.{number} = {context.where(each)}",
                f"  %copied.{number} = load {type_}, ptr %shared.{number}, align 4",
                f"  store {type_} %copied.{number}, ptr {each}",
            ]
        within = sorted(each for each in places if each // 2 in self.piece)
        cases = " ".join(f"i32 {each}, label %{label_of(each)}" for each in within)
        written = _written(builder.lines)
        back = [number for number, each in enumerate(copied) if each in written]
        leaving, ways = [], []
        for label in self._outside():
            leaving += [f"{label}:", "  br label %leave"]
            ways.append(f"[{_number_of(label)}, %{label}]")
        leaving.append("leave:")
        leaving.append(f"  %onward = phi i32 {', '.join(ways)}")
        for number in back:
            type_ = context.type_of(copied[number])
            leaving += [
                f"  %given.{number} = load {type_}, ptr {copied[number]}",
                f"  store {type_} %given.{number}, ptr %shared.{number}, align 4",
            ]
        before, lines = builder.lines[: self._begins], builder.lines[self._begins :]
        if not own:
            lines = loosely_aligned(lines, context)
        return [
            "entry:",
            *builder.allocations,
            *entry,
            *before,
            f"  switch i32 %place, label %nowhere [{cases}]",
            *lines,
            *leaving,
            "  ret i32 %onward",
            "nowhere:",
            "  unreachable",
            "}",
        ]


def piece_arguments(lanes: int, arguments: int) -> list[tuple[str, str]]:
    """Type and name of each argument of a piece; its function has `arguments` of its own."""
    own = [("i64", f"%argument.{number}") for number in range(arguments)]
    return [*warp_arguments(lanes), *own, *_MORE]


def label_of(place: int) -> str:
    """The label of a place."""
    return f"{'check' if place % 2 else 'node'}.{place // 2}"


def places_in(labels: Iterable[str]) -> set[int]:
    """The places among these labels."""
    return {_number_of(each) for each in labels if each not in _LEAVING}


def labels_outside(lines: Sequence[str]) -> list[str]:
    """The labels of places and exits that a text jumps to but does not define."""
    there = {each[:-1] for each in lines if each.endswith(":")}
    met = dict.fromkeys(
        label for line in lines if "label" in line for label in _TARGETS.findall(line)
    )
    return [each for each in met if each not in there]


def _number_of(label: str) -> int:
    if label in _LEAVING:
        return _LEAVING[label]
    found = _PLACES.fullmatch(label)
    assert found is not None, label
    return 2 * int(found[2]) + (found[1] == "check")


def _written(lines: Iterable[str]) -> set[str]:
    """The slots that a text stores to."""
    return {
        name for line in lines if line.startswith("  store ") for name in NAMES.findall(line)[-1:]
    }


def loosely_aligned(lines: Iterable[str], context: Context) -> list[str]:
    """The lines with accesses to shared slots at a lower alignment, which a frame requires."""
    return [
        f"{line}, align 4" if line.endswith('"') and _last_name(line) in context.places else line
        for line in lines
    ]


def _last_name(line: str) -> str:
    """The slot of a register that a line ends with."""
    return line[line.rfind('%"=') :]
