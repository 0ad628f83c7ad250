"""The permitted and the forbidden damage of a device fault: judging programs with a step `Wild`.

Ops that depend on the step carry its failure, on any device, and fail as they do serially. When a
device is lost, any of its unfinished ops fail too. So every other op gives its serial result or
fails. An op that does not depend on that device must not fail. An operator on that device may be
refused at its call, and then is not part of the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from helpers.engine_programs.answers import raised
from helpers.engine_programs.judge import compare, reset_devices
from helpers.engine_programs.reference_model import Model
from helpers.engine_programs.runner import Run, Runner, open_engine
from helpers.engine_programs.steps import (
    LENGTH,
    Nest,
    Place,
    Program,
    Push,
    Set,
    Setting,
    View,
    Wild,
    needed,
)

import cudasync as cs


def differences_after_fault(
    program: Program, setting: Setting, *, comes_back: bool = True
) -> list[str]:
    """The unnecessary damage, and the state that was not good again after the reset.

    Without `comes_back` the device is taken for lost: nothing is asked of it after the fault.
    """
    found = ["the run was not judged"]
    try:
        with open_engine(setting) as engine:
            found = _run(program, setting, engine, comes_back=comes_back)
    except (cs.CudasyncError, TimeoutError) as error:
        found = [f"{type(error).__name__}: {error}"]
    finally:
        # Also after an error of the test itself, which the next program must not pay for.
        if found and comes_back:
            reset_devices()
    return found


def _run(program: Program, setting: Setting, engine: cs.Engine, *, comes_back: bool) -> list[str]:
    runner = Runner(program, engine, holds=setting.holds)
    lost = _lost(runner)
    runner.push_all()
    runner.collect()
    first = raised(engine.waitall)
    engine.clear_errors()
    run = runner.outcome(first, without=lost)
    steps = program.by_id()
    found = [
        f"step {id_}, elsewhere, was refused at its call"
        for id_ in runner.refused
        if not _is_on(lost, steps[id_].step.target, runner)
    ]
    # The rest of the run is judged as if the refused steps did not exist.
    run.order = [id_ for id_ in run.order if id_ not in runner.refused]
    del runner
    if comes_back:
        lost.reset()
    found += _harmed(program, run, lost.ordinal)
    if first is None:
        found.append("waitall raised nothing")
    if not comes_back:
        return found
    tame = replace(program, pushes=tuple(map(_tamed, program.pushes)))
    again = compare(tame, Runner(tame, engine, holds=setting.holds).run())
    return found + [f"after the reset: {each}" for each in again]


def _is_on(device: cs.Device, view: View, runner: Runner) -> bool:
    return view.space == "d" and runner.devices[view.index] is device


def _lost(runner: Runner) -> cs.Device:
    wild = next(p.step for p in runner.program.pushes if isinstance(p.step, Wild))
    return runner.devices[wild.target.index]


def _tamed(push: Push) -> Push:
    return replace(push, step=Set(push.step.target, 3)) if isinstance(push.step, Wild) else push


def _harmed(program: Program, run: Run, ordinal: int) -> list[str]:
    """Compare a run with the model, except where the lost device took part."""
    count = cs.device_count()
    lost = {("d", i) for i, d in enumerate(program.devices) if d % count == ordinal}
    expected = Model(program).run(run.order)
    steps = program.by_id()
    has_failed = {id_ for id_, wanted in expected.results.items() if _is_failure(wanted)}
    spared, tainted = _spared(program, run.order, lost, has_failed)
    found = []
    for id_, wanted in expected.results.items():
        got = run.results.get(id_)
        if _is_failure(wanted) and not _is_failure(got):
            found.append(f"step {id_} faults, or depends on what does, and gave {got}")
        elif id_ in spared and got != wanted:
            found.append(f"step {id_}, elsewhere: {got}, not {wanted}")
        elif not _is_failure(got) and got != wanted and not isinstance(steps[id_].step, Nest):
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


def _is_failure(result: object) -> bool:
    return isinstance(result, tuple) and result[:1] == ("failed",)


def _spared(
    program: Program, order: Sequence[str], lost: set[tuple[str, int]], has_failed: set[str]
) -> tuple[set[str], set[tuple[str, int, int]]]:
    """The steps that do not depend on lost arrays, and the elements that do."""
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
        read, written = elements(needed(step)), elements(step.writes)
        is_harmed = any(e[:2] in lost for e in read | written) or bool(read & tainted)
        if is_harmed:
            tainted |= written
        else:
            spared.add(id_)
            # A step that fails by itself leaves the old content.
            if id_ not in has_failed:
                tainted -= written
    for id_ in list(spared):
        # A step returns the results of the ops that it pushed.
        if any(each.startswith(f"{id_}.") and each not in spared for each in order):
            spared.discard(id_)
    return spared, tainted
