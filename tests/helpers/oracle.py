"""Running a program on an engine, and judging what came out."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import cudasync as cs
from helpers.programs import LENGTH, Clear, Copy, Fail, Mix, Note, Program, Read, Set, Step, View

KERNELS = Path(__file__).parent / "kernels.ptx"


class Planned(Exception):
    """What a step that fails raises."""


@dataclass
class Outcome:
    """All that a program can be seen to have done."""

    device: list[list[int]] = field(default_factory=list)
    host: list[list[int]] = field(default_factory=list)
    logs: list[list[int]] = field(default_factory=list)
    # Per step: what it returned or read, or the name of the op whose failure it carries.
    results: list[object] = field(default_factory=list)


class Runner:
    """The arrays and kernels of one run of a program on one engine."""

    def __init__(self, program: Program, engine: cs.Engine) -> None:
        self.program = program
        self.engine = engine
        self.device = cs.Device(0)
        start = np.arange(LENGTH, dtype=np.int32)
        self.arrays = [cs.array(start + 100 * i) for i in range(program.device_arrays)]
        self.host = []
        for i in range(program.host_arrays):
            pinned = cs.pinned_empty((LENGTH,), np.int32)
            pinned[:] = start + 1000 * i
            self.host.append(pinned)
        self.tokens = [cs.Var(f"token {i}") for i in range(program.tokens)]
        self.logs: list[list[int]] = [[] for _ in self.tokens]
        module = cs.Module.from_file(KERNELS)
        self.mix, self.set = module.kernel("mix"), module.kernel("set")

    def run(self) -> Outcome:
        outcome = Outcome()
        ops = [self.push(step, f"step {n}", n) for n, step in enumerate(self.program.steps)]
        for op in ops:
            outcome.results.append(_result_of(op) if isinstance(op, cs.Op) else op)
        self.engine.clear_errors()
        outcome.device = [a.numpy().tolist() for a in self.arrays]
        outcome.host = [h.tolist() for h in self.host]
        outcome.logs = self.logs
        return outcome

    def view(self, view: View):
        arrays = self.arrays if view.space == "device" else self.host
        return arrays[view.index][view.start : view.stop]

    def push(self, step: Step, name: str, number: int) -> object:
        match step:
            case Mix(target, source, factor, priority) if target.space == "device":
                n = np.uint32(target.stop - target.start)
                return self.mix[1, 32](
                    self.view(target),
                    self.view(source),
                    np.int32(factor),
                    n,
                    name=name,
                    priority=priority,
                )
            case Mix(target, source, factor):
                x, y = self.view(target), self.view(source)
                index = np.arange(len(x), dtype=np.int32)

                def mix() -> None:
                    x[:] = 31 * x + factor * y + index

                return self.engine.push(mix, reads=[x, y], writes=[x], name=name)
            case Set(target, value) if target.space == "device":
                n = np.uint32(target.stop - target.start)
                return self.set[1, 32](cs.Out(self.view(target)), np.int32(value), n, name=name)
            case Set(target, value):
                x = self.view(target)

                def set_() -> None:
                    x[:] = value + np.arange(len(x), dtype=np.int32)

                return self.engine.push(set_, writes=[x], name=name)
            case Copy(target, source):
                return cs.copy(self.view(target), self.view(source), name=name)
            case Clear(target):
                x = self.view(target)
                return self.engine.push(
                    lambda stream: cs.memset_async(x, 0, stream=stream),
                    writes=[x],
                    device=self.device,
                    name=name,
                )
            case Note(token, is_write):
                variable, log = self.tokens[token.index], self.logs[token.index]

                def note() -> tuple[int, ...]:
                    if is_write:
                        log.append(number)
                    return tuple(log)

                writes = [variable] if is_write else []
                return self.engine.push(note, reads=[variable], writes=writes, name=name)
            case Fail(target, on_device):

                def fail(stream: object = None) -> None:
                    raise Planned(name)

                where = self.device if on_device else None
                return self.engine.push(fail, writes=[self.view(target)], device=where, name=name)
            case Read(source):
                try:
                    return self.view(source).numpy().tolist()
                except cs.OpError as error:
                    return ("failed", error.op)
        raise AssertionError(f"no such step: {step}")


def _result_of(op: cs.Op) -> object:
    error = op.exception()
    return op.result() if error is None else ("failed", error.op)


def run_serially(program: Program) -> Outcome:
    with cs.Engine("serial") as engine:
        return Runner(program, engine).run()


def violations(program: Program, trace: list[cs.TraceEntry]) -> list[str]:
    """Pairs of steps that the trace shows running at once, or in the wrong order, though one
    writes what the other uses. Only steps on the same clock are compared."""
    entries = {entry.name: entry for entry in trace}
    found = []
    for late, step in enumerate(program.steps):
        for early in range(late):
            hazard = _hazard(program.steps[early], step)
            a, b = entries.get(f"step {early}"), entries.get(f"step {late}")
            if hazard is None or a is None or b is None:
                continue
            if (a.kind == "host") == (b.kind == "host") and b.start_us < a.end_us:
                found.append(f"{hazard}: {step} began before {program.steps[early]} had ended")
    return found


def _hazard(early: Step, late: Step) -> str | None:
    if any(w.overlaps(r) for w in early.writes for r in late.reads):
        return "RAW"
    if any(r.overlaps(w) for r in early.reads for w in late.writes):
        return "WAR"
    if any(a.overlaps(b) for a in early.writes for b in late.writes):
        return "WAW"
    return None
