"""Random programs that lose a device, as Hypothesis strategies: one step of each is `Wild`.

Each step is one op on one device, or several such ops, so that the judge can tell the damage.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from helpers.engine_programs.steps import (
    LENGTH,
    Batch,
    Copy,
    Inner,
    Nest,
    Note,
    Program,
    Push,
    Step,
    Total,
    View,
    Wild,
)
from helpers.engine_programs.strategies import Room, bodies, kinds, pushes, rooms
from hypothesis import strategies as st

# Steps that move data between devices, and steps that ask for it.
_CROSSING = ("copy",) * 5 + (
    "mix",
    "add",
    "set",
    "clear",
    "join",
    "hold",
    "direct",
    "read",
    "wait",
    "batch",
)
# Operators beside a lost device: each op of a step is on one device, or on the CPU.
_LOSING = (
    *("total", "inner", "add") * 2,
    *("copy",) * 5,
    *("cpu total", "cpu inner", "cpu hold"),
    *("mix", "host mix", "set", "clear", "hold", "read", "wait"),
)
_DEVICES = ((0, 1), (1, 0), (0, 1, 2), (2, 0, 1), (0, 0, 1), (0, 1, 1))


@st.composite
def faulting_programs(draw, max_steps: int = 12, threads: int = 1) -> Program:
    """A program with one step, at any place, that faults and loses its device."""
    room = replace(draw(rooms), loses_device=True)
    program = draw(bodies(room, max_steps, kinds(ordered=False, fails=False), True, threads))
    return _with_wild(draw, room, program, threads)


@st.composite
def crossing_programs(draw, max_steps: int = 16) -> Program:
    """A program of copies between devices, one of which is lost, mostly early."""
    room = Room(draw(st.sampled_from(_DEVICES)), hosts=3, tokens=1, loses_device=True)
    program = draw(bodies(room, max_steps, _CROSSING, False, 1))
    return _with_wild(draw, room, program, 1, most=max_steps // 4)


@st.composite
def computing_faults(draw, max_steps: int = 16) -> Program:
    """A program mostly of operators, reductions and products, on several devices and the CPU. One
    kernel faults and loses a device."""
    room = Room(draw(st.sampled_from(_DEVICES)), hosts=3, tokens=1, loses_device=True)
    program = draw(bodies(room, max_steps, _LOSING, False, 1))
    if draw(st.booleans()):
        return _with_wild(draw, room, program, 1, most=max_steps // 4)
    place = draw(st.integers(0, min(max_steps // 4, len(program.pushes))))
    chain = draw(st.sampled_from(_escapes(room.devices)))
    kept = tuple(map(_without_batched_notes, program.pushes))
    return replace(program, pushes=(*kept[:place], *map(Push, chain), *kept[place:]))


def _escapes(devices: tuple[int, ...]) -> list[tuple[Step, ...]]:
    """Chains in which lost data is copied to another device, for a reduction or a product there."""
    half = LENGTH // 2
    chains: list[tuple[Step, ...]] = []
    for lost, to in permutations(range(len(devices)), 2):
        if devices[lost] != devices[to]:
            wild = Wild(View("d", lost, 0, half))
            low, high = View("d", to, 0, half), View("d", to, half, LENGTH)
            moved = wild, Copy(low, wild.target)
            chains += [(*moved, Total(high, low)), (*moved, Inner(high, low, low))]
    return chains


def _with_wild(
    draw, room: Room, program: Program, threads: int, most: int | None = None
) -> Program:
    """Insert a wild step among the pushes, after at most `most` of them."""
    wild = draw(pushes(room, ("wild",), False, threads))
    count = len(program.pushes)
    place = draw(st.integers(0, count if most is None else min(most, count)))
    kept = tuple(map(_without_batched_notes, program.pushes))
    return replace(program, pushes=(*kept[:place], wild, *kept[place:]))


def _without_batched_notes(push: Push) -> Push:
    """Remove notes from batches: a lost device takes a batch's notes too, so logs could not be
    judged."""
    step = push.step
    if isinstance(step, Batch):
        step = Batch(tuple(each for each in step.inner if not isinstance(each.step, Note)))
    elif isinstance(step, Nest):
        step = Nest(step.token, tuple(map(_without_batched_notes, step.inner)))
    return replace(push, step=step)
