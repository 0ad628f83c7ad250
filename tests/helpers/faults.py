"""What a device fault may harm, and what it must not: judging programs with a step `Wild`.

When a device is lost, its unfinished ops fail, whichever these were. So every op gives what it
gives serially or fails, and one that has nothing to do with that device does not fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import cudasync as cs
from helpers.model import Model
from helpers.oracle import compare
from helpers.running import Run, Runner, open_engine, raised
from helpers.steps import LENGTH, Nest, Place, Program, Push, Set, Setting, View, Wild


def differences_after_fault(program: Program, setting: Setting) -> list[str]:
    """What was harmed without need, and what was not well again once the device was reset."""
    with open_engine(setting) as engine:
        runner = Runner(program, engine, holds=setting.holds)
        lost = _lost(runner)
        runner.push_all()
        runner.collect()
        first = raised(engine.waitall)
        engine.clear_errors()
        run = runner.outcome(first, without=lost)
        del runner
        lost.reset()
        found = _harmed(program, run, lost.ordinal)
        if first is None:
            found.append("waitall raised nothing")
        tame = Program(program.devices, program.hosts, program.tokens, tuple(_tamed(program)))
        again = compare(tame, Runner(tame, engine, holds=setting.holds).run())
        return found + [f"after the reset: {each}" for each in again]


def _lost(runner: Runner) -> cs.Device:
    wild = next(p.step for p in runner.program.pushes if isinstance(p.step, Wild))
    return runner.devices[wild.target.index]


def _tamed(program: Program) -> Iterable[Push]:
    for push in program.pushes:
        step = push.step
        yield Push(Set(step.target, 3)) if isinstance(step, Wild) else push


def _harmed(program: Program, run: Run, ordinal: int) -> list[str]:
    """Compare a run with the model wherever the lost device had no part in it."""
    count = cs.device_count()
    lost = {("d", i) for i, d in enumerate(program.devices) if d % count == ordinal}
    expected = Model(program).run(run.order)
    steps = program.by_id()
    spared, tainted = _spared(program, run.order, lost)
    found = []
    for id_, wanted in expected.results.items():
        got = run.results.get(id_)
        has_failed = isinstance(got, tuple) and got[:1] == ("failed",)
        if isinstance(steps[id_].step, Wild) and not has_failed:
            found.append(f"step {id_} faults, and did not fail")
        elif id_ in spared and got != wanted:
            found.append(f"step {id_}, elsewhere: {got}, not {wanted}")
        elif not has_failed and got != wanted and not isinstance(steps[id_].step, Nest):
            found.append(f"step {id_} neither failed nor gave {wanted}: {got}")
    for space, wants, gots in (
        ("d", expected.device, run.device),
        ("h", expected.host, run.host),
    ):
        for i, (wanted, got) in enumerate(zip(wants, gots, strict=True)):
            if (space, i) not in lost:
                kept = [e for e in range(LENGTH) if (space, i, e) not in tainted]
                if any(wanted[e] != got[e] for e in kept):
                    found.append(f"{space}{i}, where unharmed, is\n    {got}, not\n    {wanted}")
    if run.logs != expected.logs:
        found.append(f"logs: {run.logs}, not {expected.logs}")
    return found


def _spared(
    program: Program, order: Sequence[str], lost: set[tuple[str, int]]
) -> tuple[set[str], set[tuple[str, int, int]]]:
    """The steps that have nothing to do with lost arrays, and the elements that have."""
    tainted: set[tuple[str, int, int]] = set()
    spared = set()
    steps = program.by_id()

    def elements(places: Iterable[Place]) -> set[tuple[str, int, int]]:
        return {
            (view.space, view.index, element)
            for view in places
            if isinstance(view, View)
            for element in range(view.span.start, view.span.stop)
        }

    for id_ in order:
        step = steps[id_].step
        read, written = elements(step.reads), elements(step.writes)
        is_harmed = any(e[:2] in lost for e in read | written) or bool(read & tainted)
        if is_harmed:
            tainted |= written
        else:
            tainted -= written
            spared.add(id_)
    for id_ in list(spared):
        # What it returns is what came of the ops that it pushed.
        if any(each.startswith(f"{id_}.") and each not in spared for each in order):
            spared.discard(id_)
    return spared, tainted
