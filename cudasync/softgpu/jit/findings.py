"""Cellar, jit. The results of all analyses of a kernel before emission, for all its variants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.softgpu.jit.analysis.abstract_interpretation import Probe
from cudasync.softgpu.jit.analysis.divergence import analyse
from cudasync.softgpu.jit.analysis.launch_properties import find_traits
from cudasync.softgpu.jit.analysis.reconvergence_order import Flow
from cudasync.softgpu.jit.analysis.suspension_points import (
    Stop,
    find_stops,
    held_nodes,
    parts_lanes,
    renumbered,
    with_meetings,
)
from cudasync.softgpu.jit.block_loop.parallel_regions import Segment, find_segments
from cudasync.softgpu.jit.opcode_table import EMITTERS
from cudasync.softgpu.jit.splitting.pieces import find_pieces, is_large, is_small, split_points
from cudasync.softgpu.jit.transforms.suspending_functions import is_barrier, is_meeting
from cudasync.softgpu.semantics.instruction_validity import (
    beyond_parameter,
    unfit_type,
    unknown_modifier,
)
from cudasync.softgpu.semantics.unsupported_instructions import refuse_beyond

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.ptx import ir
    from cudasync.softgpu.jit.analysis.divergence import Divergence
    from cudasync.softgpu.jit.kernel_abi.specialisation import Settings, Variant
    from cudasync.softgpu.jit.splitting.pieces import Piece
    from cudasync.softgpu.jit.transforms.program import Program
    from cudasync.softgpu.jit.vector_ir.uniformity import Shape


@dataclass(frozen=True, slots=True)
class Analysis:
    """The analyses of a function before emission; they do not depend on the warp width."""

    flow: Flow
    divergence: Divergence
    stops: tuple[Stop, ...]
    segments: tuple[Segment, ...]
    # Empty unless the function is too large for one LLVM function and has no segments.
    pieces: tuple[Piece, ...]


class Findings:
    """The analyses of a program with some settings; each new variant may add to them."""

    def __init__(self, program: Program) -> None:
        self.traits = find_traits(program)
        # By the function's name and the assumptions of its variant.
        self.analyses: dict[tuple[str, bool, bool], Analysis] = {}


def analyse_function(
    program: Program, function: ir.Function, variant: Variant, settings: Settings
) -> Analysis:
    def probe(shapes: dict[str, Shape]) -> Probe:
        return Probe(program, function, variant, settings, shapes)

    waiting = program.waiting
    weight = settings.piece_weight
    is_cut = is_large(function, weight) and not settings.convergence
    points = split_points(function, weight) if is_cut else frozenset[int]()
    flow = Flow(function, is_barrier, is_meeting(function, waiting), points)
    loops_and_barriers = (
        find_stops(flow, waiting, all_matter=settings.convergence) if function.is_kernel else ()
    )
    _refuse_unknown(probe({}))
    divergence, stops = _settle(flow, loops_and_barriers, probe, program, settings)
    segments = find_segments(flow, stops, divergence)
    pieces: tuple[Piece, ...] = ()
    are_small = bool(segments) and all(is_small(flow, each.nodes, weight) for each in segments)
    if points and not are_small:
        segments, pieces = (), find_pieces(flow, weight)
    return Analysis(flow, divergence, stops, segments, pieces)


def _settle(
    flow: Flow,
    loops_and_barriers: tuple[Stop, ...],
    probe: Callable[[dict[str, Shape]], Probe],
    program: Program,
    settings: Settings,
) -> tuple[Divergence, tuple[Stop, ...]]:
    """Divergence and suspension points: each depends on the other.

    The first round assumes that lanes leave every loop together. Each later round gives that up
    for more loops, so the iteration ends.
    """
    held: frozenset[int] = frozenset()
    while True:
        stops = with_meetings(flow, loops_and_barriers, held, program.waiting)
        places = held_nodes(flow, stops, held)
        divergence = analyse(flow, places, EMITTERS, probe, assume_varying=settings.assume_varying)
        parting = [stop for stop in stops if parts_lanes(flow, stop, divergence.divergent)]
        now = frozenset(stop.code for stop in parting if stop.loop is not None)
        if now <= held:
            return divergence, renumbered(
                stop for stop in stops if not stop.is_meeting or stop in parting
            )
        held |= now


def _refuse_unknown(probe: Probe) -> None:
    branches = ("bra", "brx", "ret", "exit")
    for instruction in probe.function.body:
        refuse_beyond(instruction, probe.program.module.file)
        if instruction.opcode not in EMITTERS and instruction.opcode not in branches:
            probe.refuse(instruction)
        if is_barrier(instruction) and not probe.is_kernel:
            probe.refuse(instruction, "a barrier in a device function is not implemented")
        modifier = unknown_modifier(instruction)
        if modifier is not None:
            probe.refuse(instruction, f"{instruction.opcode} with .{modifier} is not implemented")
        unfit = unfit_type(instruction)
        if unfit is not None:
            probe.refuse(instruction, f"{instruction.opcode} does not take .{unfit}")
        beyond = beyond_parameter(probe.function, instruction)
        if beyond is not None:
            probe.refuse(instruction, f"an access beyond the end of {beyond}")
