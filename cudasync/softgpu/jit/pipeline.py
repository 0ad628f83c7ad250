"""Cellar, jit. Lowers one kernel to LLVM IR text: the warp function and the code around it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cudasync.softgpu.jit.addressing.memcheck_functions import FUNCTIONS
from cudasync.softgpu.jit.analysis.cost_model import cost
from cudasync.softgpu.jit.block_loop.block_loop import Blocks
from cudasync.softgpu.jit.block_loop.function_merging import share, tables
from cudasync.softgpu.jit.block_loop.parallel_regions import Segment, SegmentText, segment_head
from cudasync.softgpu.jit.block_loop.region_loop import ROUNDS, rounds_call
from cudasync.softgpu.jit.block_loop.warp_loop import axes_in, emit_active, warp_parameters
from cudasync.softgpu.jit.control_flow.calls import argument_names, function_name
from cudasync.softgpu.jit.control_flow.masked_execution import Control
from cudasync.softgpu.jit.convergence.undefined import Undefined
from cudasync.softgpu.jit.convergence.undefined_arguments import (
    are_followed,
    undefined_parameters,
)
from cudasync.softgpu.jit.convergence.unsafe_shuffles import unsafe_shuffles
from cudasync.softgpu.jit.findings import Findings, analyse_function
from cudasync.softgpu.jit.kernel_abi.kernel_text import KernelText
from cudasync.softgpu.jit.machine_code.codegen import declaration
from cudasync.softgpu.jit.machine_code.split_modules import LIGHT
from cudasync.softgpu.jit.opcode_table import EMITTERS
from cudasync.softgpu.jit.splitting.context import Context
from cudasync.softgpu.jit.splitting.dispatcher import Dispatcher
from cudasync.softgpu.jit.splitting.piece_text import PieceText, piece_arguments
from cudasync.softgpu.jit.synchronisation.named_barriers import open_function
from cudasync.softgpu.jit.vector_ir.builder import Builder
from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering
from cudasync.softgpu.jit.vector_ir.register_allocas import make_slots
from cudasync.softgpu.semantics.memory_visibility import callees

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cudasync.ptx import ir
    from cudasync.softgpu.jit.addressing.address_bounds import Reach
    from cudasync.softgpu.jit.kernel_abi.specialisation import Settings, Variant
    from cudasync.softgpu.jit.splitting.pieces import Piece
    from cudasync.softgpu.jit.transforms.program import Program

# A dispatcher with at most this many places is optimised.
_MOST_PLACES = 256
# Limit for a device function's context, which is on the host's stack.
_MOST_STACK_BYTES = 32 << 10
_ATTRIBUTES = "nounwind null_pointer_is_valid"
_ALWAYS = {
    "declare i32 @llvm.cttz.i32(i32, i1)",
    "declare i32 @llvm.ctlz.i32(i32, i1)",
    "declare i64 @llvm.cttz.i64(i64, i1)",
    "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
}
_METADATA = """\
!0 = !{}
!1 = !{!"branch_weights", i32 1, i32 2000}
!2 = !{!"branch_weights", i32 2000, i32 1}
!3 = !{i32 1}
"""


def lower(
    program: Program,
    variant: Variant,
    settings: Settings,
    findings: Findings | None = None,
) -> KernelText:
    """Lower the kernel for `variant`; PtxError for the first instruction that cannot be lowered.

    `findings` must belong to this program with these settings.
    """
    findings = findings or Findings(program)
    reaches: dict[int, Reach] = {}
    kernel = _Part(program, program.kernel, variant, settings, findings, reaches)
    # A device function does not know which lanes will call it.
    anyone = replace(variant, is_whole=False)
    parts = [kernel]
    functions = program.functions.values()
    parts += [_Part(program, each, anyone, settings, findings, reaches) for each in functions]
    is_named = kernel.is_named
    own_functions = []
    frame_bytes = kernel.frame_bytes
    if is_named:
        numbered = kernel.control.numbered
        own_functions.append(open_function(kernel.lowering, kernel.stops, frame_bytes, numbered))
    own_cost = cost(program.kernel.body)
    builders = [builder for part in parts for builder in part.builders]
    if kernel.segments:
        call = rounds_call(kernel.segments, kernel.width, own_cost)
        run_blocks = [f"  %status = {call}", "  ret i32 %status"]
    else:
        outer = Blocks(
            variant,
            frame_bytes=frame_bytes,
            has_stops=bool(kernel.stops),
            is_named=is_named,
            axes=axes_in(line for each in kernel.builders for line in each.lines),
        )
        storage = program.kernel_storage
        uses_shared = bool(storage.shared or storage.reserved_shared_bytes)
        outer.emit(slab=program.slab, uses_shared=uses_shared, cost=own_cost)
        builders.append(outer.builder)
        run_blocks = outer.builder.lines
    if findings.traits.nontemporal is not None:
        run_blocks = list(_with_fences(run_blocks))
    called = FUNCTIONS | ROUNDS
    constants = dict(kernel.tables)
    needed = set(_ALWAYS)
    for builder in builders:
        called |= builder.functions
        constants |= builder.constants
        needed |= builder.declarations
    declarations = "\n".join(sorted(needed))
    text = "\n".join(
        [
            *(line for part in parts for line in part.lines),
            f"define i32 @kernel(ptr %job) {_ATTRIBUTES} {{",
            *run_blocks,
            "}",
            *own_functions,
            *(f"{name} = {text}" for name, text in constants.items()),
            *(declaration(each) for each in called.values()),
            declarations,
            _METADATA,
        ]
    )
    has_waiting_loop = any(not stop.is_barrier for stop in kernel.stops)
    return KernelText(
        text=text,
        functions=called,
        declarations=declarations,
        frame_bytes=frame_bytes,
        has_waiting_loop=has_waiting_loop,
        traits=findings.traits,
    )


def _with_fences(lines: Iterable[str]) -> Iterator[str]:
    """Add fences: non-temporal stores are not ordered with later accesses."""
    for line in lines:
        if line.startswith("  ret "):
            yield "  fence seq_cst"
        yield line


class _Part:
    """The kernel or one of its functions, lowered: the `lines` of one LLVM function, or of one
    for each of its `segments`."""

    def __init__(
        self,
        program: Program,
        function: ir.Function,
        variant: Variant,
        settings: Settings,
        findings: Findings,
        reaches: dict[int, Reach],
    ) -> None:
        # Only the kernel itself may use non-temporal stores; such a kernel calls no function.
        self._is_nontemporal = findings.traits.nontemporal is not None
        self._program = program
        self._function = function
        self._variant = variant
        self._settings = settings
        self._reaches = reaches
        key = function.name, variant.is_rowwise, variant.is_whole
        found = findings.analyses.get(key)
        if found is None:
            found = findings.analyses[key] = analyse_function(program, function, variant, settings)
        self._flow, self._divergence = found.flow, found.divergence
        self.stops, self.segments = found.stops, found.segments
        self._arguments = 0 if function.is_kernel else len(argument_names(function))
        self.builders: list[Builder] = []
        self.lines: list[str] = []
        # For segments: the tables passed to them, and the length of a row of numbers.
        self.tables: dict[str, str] = {}
        self.width = 1
        if self.segments:
            self._write_segments()
        elif not found.pieces or not self._write_pieces(found.pieces):
            self._write_whole()

    def _begin(self, names: Iterable[str], segment: Segment | None) -> SegmentText | None:
        """Begin a function with these registers."""
        builder = self._new_lowering()
        around = None
        if segment is not None:
            paces = [each.pace for each in self.segments if each.pace is not None]
            around = SegmentText(builder, segment, paces, self._variant)
        self._new_control(around)
        self.frame_bytes = self.control.frame_bytes
        if around is not None:
            around.begin(self.frame_bytes, self._program.slab, has_fuel=bool(self._flow.loops))
        else:
            emit_active(builder)
        builder.allocations.append(f"  %carry = alloca {builder.vector_type('i1')}")
        builder.emit(f"store {builder.vector_type('i1')} zeroinitializer, ptr %carry")
        names = list(names)
        make_slots(self.lowering, names)
        if self._settings.convergence:
            shuffles = unsafe_shuffles(self.lowering, self._flow, self._divergence)
            self.lowering.undefined = Undefined(self.lowering, names, shuffles)
        return around

    def _new_lowering(self) -> Builder:
        """Make the `Lowering` of the next LLVM function; return its builder."""
        builder = Builder(self._variant.lanes)
        like = self.lowering if self.builders else None
        self.builders.append(builder)
        shapes = self._divergence.shapes
        self.lowering: Lowering = Lowering(
            self._program, self._function, self._variant, self._settings, shapes, builder, like
        )
        self.lowering.is_nontemporal = self._is_nontemporal
        self.lowering.reaches = self._reaches
        return builder

    def _new_control(
        self, around: SegmentText | PieceText | None, *, is_split: bool = False
    ) -> None:
        like = self.control if len(self.builders) > 1 else None
        self.control: Control = Control(
            self.lowering,
            self._flow,
            self._divergence,
            self.stops,
            EMITTERS,
            around,
            like,
            is_split=is_split,
        )
        self.is_named = self.control.is_named and bool(self.stops)

    def _end(self) -> list[str]:
        """The body of the current function."""
        builder = self.builders[-1]
        return ["entry:", *builder.allocations, *builder.lines, "}"]

    def _write_segments(self) -> None:
        bodies = [self._segment_body(segment) for segment in self.segments]
        shared = share(bodies)
        for code, each in enumerate(shared):
            if each.owner == code:
                self.lines += [f"{segment_head(code)} {_ATTRIBUTES} {{", *each.lines]
        self.tables, self.width = tables(shared)

    def _segment_body(self, segment: Segment) -> list[str]:
        around = self._begin(segment.named, segment)
        assert around is not None
        self.control.emit()
        around.end(has_fuel=bool(self._flow.loops))
        return self._end()

    def _write_whole(self) -> None:
        self._begin(self._function.registers, None)
        self.control.emit()
        self.lines += [self._head(), *self._end()]

    def _head(self, attributes: str = "") -> str:
        """The first line of the function that runs a warp."""
        if self._function.is_kernel:
            attributes = attributes or " alwaysinline"
        name = "@warp" if self._function.is_kernel else function_name(self._function)
        parameters = warp_parameters(self._variant.lanes)
        for number in range(self._arguments):
            parameters += f", i64 %argument.{number}"
        is_called = not self._function.is_kernel
        if is_called and self._settings.convergence and are_followed(self._program):
            parameters = ", ".join([parameters, *undefined_parameters(self._function)])
        return f"define internal i32 {name}({parameters}){attributes} {_ATTRIBUTES} {{"

    def _write_pieces(self, pieces: Sequence[Piece]) -> bool:
        """Write the function as pieces and a dispatcher; False if it cannot be split."""
        if not self._function.is_kernel and _calls_itself(self._program, self._function):
            return False
        texts = []
        for piece in pieces:
            builder = self._new_lowering()
            text = PieceText(builder, piece)
            self._new_control(text, is_split=True)
            emit_active(builder)
            text.begin()
            self.control.emit_piece(piece)
            texts.append(text)
        names = [f'@"piece.{n}.{self._function.name}"' for n in range(len(pieces))]
        builder = self._new_lowering()
        dispatcher = Dispatcher(builder, pieces, names)
        self._new_control(None, is_split=True)
        emit_active(builder)
        self.control.emit_dispatcher(dispatcher)
        parts: list[PieceText | Dispatcher] = [*texts, dispatcher]
        places = frozenset().union(*(each.leads_to() for each in parts))
        entries = {each // 2 for each in places}
        stopped = {stop.continuation for stop in self.stops}
        entries |= stopped - {self._flow.exit}
        vector_masks = frozenset(builder.vector_masks)
        named = [each.named() for each in parts]
        returning = [each.named() for each in texts if each.goes_back()]
        context = Context(self.lowering, self._flow, named, returning, entries, vector_masks)
        if not self._function.is_kernel and context.size > _MOST_STACK_BYTES:
            self.builders.clear()
            return False
        parameters = ", ".join(
            f"{type_} {name}"
            for type_, name in piece_arguments(self._variant.lanes, self._arguments)
        )
        for name, text in zip(names, texts, strict=True):
            light = f" {LIGHT}" if text.piece.is_light else ""
            head = f"define internal i32 {name}({parameters}) noinline{light} {_ATTRIBUTES} {{"
            self.lines += [head, *text.body(context, places)]
        frame_bytes = self.control.frame_bytes if self._function.is_kernel else None
        body = dispatcher.body(context, places, frame_bytes=frame_bytes, arguments=self._arguments)
        # The time of LLVM's passes is quadratic in the number of places of one switch.
        light = f" noinline {LIGHT}" if len(places) > _MOST_PLACES else ""
        self.lines += [self._head(light), *body]
        self.frame_bytes = self.control.frame_bytes + context.size
        return True


def _calls_itself(program: Program, function: ir.Function) -> bool:
    """Whether a function may be called again before it returns, and so be on the stack twice."""
    seen: set[str] = set()
    waiting = callees(function)
    while waiting:
        name = waiting.pop()
        if name not in seen and name in program.functions:
            seen.add(name)
            waiting += callees(program.functions[name])
    return function.name in seen
