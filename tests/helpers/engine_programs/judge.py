"""Judging an engine's run of a program: by the model and by the trace."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from helpers.engine_programs.program_text import to_text
from helpers.engine_programs.reference_model import Model, Outcome
from helpers.engine_programs.runner import Run, Runner, open_engine
from helpers.engine_programs.steps import Nest, Place, Program, Renew, Setting, View

import cudasync as cs


def check(program: Program, setting: Setting, *, trace: bool = False) -> None:
    """Run a program on an engine; an AssertionError says what was wrong and how to replay it."""
    found = differences(program, setting, trace=trace)
    assert not found, "\n".join([*found, replay_line(program, setting)])


def replay_line(program: Program, setting: Setting) -> str:
    """The command that runs this program again."""
    scheduler = os.environ.get("CUDASYNC_SOFTGPU_SCHEDULER")
    more = f"CUDASYNC_SOFTGPU_SCHEDULER={scheduler} " if scheduler else ""
    text = to_text(program, setting)
    return f"replay: {more}PYTHONPATH=.:tests python -m helpers.engine_programs.replay '{text}'"


def differences(program: Program, setting: Setting, *, trace: bool = False) -> list[str]:
    """The differences between an engine's run and the serial meaning of the program."""
    entries: list[cs.TraceEntry] = []
    try:
        with open_engine(setting, trace=trace) as engine:
            run = Runner(program, engine, holds=setting.holds).run()
            if trace and not setting.serial:
                entries = engine.trace()
        found = [*compare(program, run), *violations(program, run.order, entries)]
    except (cs.CudasyncError, TimeoutError) as error:
        found = [f"{type(error).__name__}: {error}"]
    if found:
        reset_devices()
    return found


def reset_devices() -> None:
    """A wrong order may have lost a device, and the next program must start without faults."""
    for ordinal in range(cs.device_count()):
        cs.Device(ordinal).reset()


def compare(program: Program, run: Run) -> list[str]:
    """The differences between a run and the model, in the order in which the pushes took effect."""
    return [*misplaced(program, run), *unequal(Model(program).run(run.order), run)]


def unequal(expected: Outcome, seen: Outcome) -> list[str]:
    """The differences between two outcomes."""
    found = []
    for name in ("device", "host", "logs", "versions"):
        pairs = zip(getattr(expected, name), getattr(seen, name), strict=True)
        for index, (wanted, got) in enumerate(pairs):
            if wanted != got:
                found.append(f"{name} {index} is\n    {got}, not\n    {wanted}")
    for name in ("results", "ran", "blamed"):
        wanted, got = getattr(expected, name), getattr(seen, name)
        for id_ in sorted(wanted.keys() | got.keys()):
            if wanted.get(id_) != got.get(id_):
                found.append(f"{name} of {id_}: {got.get(id_)}, not {wanted.get(id_)}")
    if expected.first != seen.first:
        found.append(f"waitall raised {seen.first}, not {expected.first}")
    return found


def misplaced(program: Program, run: Run) -> list[str]:
    """Ops with a wrong number: the total order must contain the order of every thread."""
    found = []
    # The launches of a run share its number.
    alone = [number for id_, number in run.numbers.items() if id_ not in run.joined]
    if len(set(alone)) < len(alone):
        found.append(f"two ops have the same number: {run.numbers}")
    for thread in range(program.threads):
        own = [str(i) for i, push in enumerate(program.pushes) if push.thread == thread]
        found += _descents([id_ for id_ in own if id_ in run.numbers], run.numbers)
    for id_, push in program.by_id().items():
        if isinstance(push.step, Nest):
            inner = [f"{id_}.{i}" for i in range(len(push.step.inner))]
            found += _descents([each for each in (id_, *inner) if each in run.numbers], run.numbers)
    return found


def _descents(ids: Sequence[str], numbers: dict[str, int]) -> list[str]:
    return [
        f"step {late} was pushed after step {early} and stands before it: {numbers}"
        for early, late in pairwise(ids)
        if numbers[late] < numbers[early]
    ]


def violations(program: Program, order: Iterable[str], trace: Iterable[cs.TraceEntry]) -> list[str]:
    """Errors in the trace: ops that ran twice, conflicting steps that overlap or are misordered.

    Only steps on the same clock are compared: each device has a clock, the workers share one.
    """
    pushes = program.by_id()
    entries: dict[str, cs.TraceEntry] = {}
    found = []
    for entry in trace:
        id_ = entry.name.removeprefix("step ")
        # A copy of gaps to gaps has ops around it, "step 0 (aside)".
        if id_ in pushes:
            if id_ in entries:
                found.append(f"step {id_} ran twice")
            entries[id_] = entry
    timed = [used for used in _uses(program, order) if used.id_ in entries]
    for place, late in enumerate(timed):
        for early in timed[:place]:
            hazard = _hazard(early, late)
            a, b = entries[early.id_], entries[late.id_]
            if hazard and _clock(a) == _clock(b) and b.start_us < a.end_us:
                found.append(f"{hazard}: step {late.id_} began before step {early.id_} had ended")
    return found


def _clock(entry: cs.TraceEntry) -> str:
    """The clock of an entry. Timelines of a device are called "device N ..."."""
    return "host" if entry.kind == "host" else " ".join(entry.timeline.split()[:2])


class _Use(NamedTuple):
    id_: str
    reads: tuple[Place, ...]
    writes: tuple[Place, ...]


def _uses(program: Program, order: Iterable[str]) -> Iterator[_Use]:
    """The accesses of each step. An array that was renewed counts as another array."""
    pushes = program.by_id()
    lives = [0] * len(program.devices)

    def now(place: Place) -> Place:
        if isinstance(place, View) and place.space == "d":
            return replace(place, index=place.index + len(lives) * lives[place.index])
        return place

    for id_ in order:
        step = pushes[id_].step
        if isinstance(step, Renew):
            lives[step.index] += 1
        yield _Use(id_, tuple(map(now, step.reads)), tuple(map(now, step.writes)))


def _hazard(early: _Use, late: _Use) -> str | None:
    if any(w.overlaps(r) for w in early.writes for r in late.reads):
        return "RAW"
    if any(r.overlaps(w) for r in early.reads for w in late.writes):
        return "WAR"
    if any(a.overlaps(b) for a in early.writes for b in late.writes):
        return "WAW"
    return None
