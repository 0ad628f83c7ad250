"""Running a program on an engine: the arrays, the pushes, and the outcome."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from helpers.concurrency.thread_crew import quick_switches
from helpers.engine_programs.answers import raised, raised_for, result_of
from helpers.engine_programs.op_functions import PATIENCE_S, function_of, place_of_launch
from helpers.engine_programs.reference_model import MOST, SEED, Outcome, failed, initial
from helpers.engine_programs.steps import (
    CPU_ARRAY,
    LENGTH,
    Add,
    Batch,
    Clear,
    ClearErrors,
    Copy,
    Draw,
    Exhaust,
    Fail,
    Fetch,
    Inner,
    Mix,
    Program,
    Push,
    Read,
    Renew,
    Set,
    Setting,
    Step,
    Token,
    Total,
    View,
    Wait,
    WaitAll,
    Wild,
)

import cudasync as cs
from cudasync.array.elementwise.compilation import kernel_for
from cudasync.array.elementwise.operation import COPY
from cudasync.array.elementwise.operations import OPERATIONS
from cudasync.array.expressions.kernel import LayoutClass
from cudasync.array.expressions.tree import Input, apply
from cudasync.array.functions.table import FUNCTIONS
from cudasync.array.host.memory import view_of
from cudasync.array.products.operation import product
from cudasync.array.reductions.operation import reduced
from cudasync.engine.replay.run import JoinedLaunch
from cudasync.testing import HostLatch

KERNELS = Path(__file__).parent / "programs.ptx"
_modules: dict[int, cs.Module] = {}

# Operands of the kernels of `Add` and `Total`: the target as operand, the source, the result.
_ADDED = apply(FUNCTIONS["add"], *(Input(i, np.dtype(np.int32)) for i in range(2)))
_STEPS = [(x, y, x) for x in (1, None) for y in (1, None, 0)]


def open_engine(setting: Setting, *, trace: bool = False) -> cs.Engine:
    engine = cs.Engine(
        "serial" if setting.serial else "async",
        streams=setting.streams or None,
        workers=setting.workers,
        pools={"io": setting.io},
        max_in_flight=setting.limit or None,
        trace=trace,
        replay=bool(setting.replay),
    )
    if not setting.at_once:
        engine._most_at_once = -1
    if not setting.streams and not setting.serial:
        # Short programs keep few streams busy: the number grows from one.
        for ordinal in range(cs.device_count()):
            engine._issuer.streams_of(cs.Device(ordinal)).compute.allowed = 1
    return engine


def kernels(device: cs.Device) -> dict[str, cs.Kernel]:
    """The kernels of a module on a device: loaded once, and again after a device reset."""
    module = _modules.get(device.ordinal)
    if module is None or module.is_closed:
        module = _modules[device.ordinal] = cs.Module.from_file(KERNELS, device=device)
    return {name: module.kernel(name) for name in ("mix", "set", "wild")}


@dataclass
class Run(Outcome):
    """An outcome, and the order of the pushes that led to it."""

    order: list[str] = field(default_factory=list)
    # The number of each op that has one.
    numbers: dict[str, int] = field(default_factory=dict)
    # The launches that joined a run.
    joined: set[str] = field(default_factory=set)


class Runner:
    """The arrays and variables of one run of a program on one engine.

    With `holds`, holding steps wait until a thread waits or has pushed all its steps.
    """

    def __init__(self, program: Program, engine: cs.Engine, *, holds: bool = True) -> None:
        self.program = program
        self.loses_device = any(isinstance(push.step, Wild) for push in program.pushes)
        self.engine = engine
        self.holds = holds
        count = cs.device_count()
        self.devices = [cs.Device(ordinal % count) for ordinal in program.devices]
        # Kernels follow their arguments from the first device to the others. They are loaded before
        # anything runs, because loading on a lost device fails.
        self.kernels = kernels(self.devices[0]) if self.devices else {}
        for device in self.devices:
            for kernel in self.kernels.values():
                kernel.on(device)
            for steps in _STEPS:
                kernel_for(_ADDED, LayoutClass(1, False, False, steps), device)
        with cs.use(engine):
            self.arrays = [
                cs.array(initial("d", i), device=device) for i, device in enumerate(self.devices)
            ]
        self.host = []
        for i in range(program.hosts):
            # Pinned and pageable memory, which drivers treat differently. A copy sets aside the
            # contents of pageable memory before it takes its place in the order: what another
            # thread pushes in between is not ordered with it.
            is_pageable = i % 2 and program.is_ordered
            array = np.empty(LENGTH, np.int32) if is_pageable else cs.pinned_empty(LENGTH, np.int32)
            array[:] = initial("h", i)
            self.host.append(array if i != CPU_ARRAY else cs.xp.asarray(array, device="cpu"))
        self.rng = cs.random.Generator(SEED)
        self.tokens = [cs.Var(f"token {i}") for i in range(program.tokens)]
        self.logs: list[list[str]] = [[] for _ in self.tokens]
        self.ops: dict[str, cs.Op] = {}
        self.results: dict[str, object] = {}
        self.ran: dict[str, int] = {}
        # Operators that a lost device refused at the call.
        self.refused: list[str] = []
        # Prepared launches of batches, by step and current arrays.
        self.prepared: dict[object, cs.PreparedLaunch] = {}
        # Latches of the holding steps; the next wait releases them.
        self.latches: list[HostLatch] = []

    def run(self) -> Run:
        """Push everything, wait for everything, and clear the errors."""
        self.push_all()
        self.collect()
        first = raised(lambda: self.engine.waitall(PATIENCE_S))
        places = {f"d{i}": array for i, array in enumerate(self.arrays)}
        blamed = raised_for(self.engine, places | {f"t{i}": t for i, t in enumerate(self.tokens)})
        self.engine.clear_errors()
        return replace(self.outcome(first), blamed=blamed)

    def push_all(self) -> None:
        """Every thread pushes its own steps; errors of all threads are raised."""
        pushes = list(enumerate(self.program.pushes))
        threads = self.program.threads
        if threads == 1:
            self._push_some(pushes)
            return
        start = threading.Barrier(threads)
        wrong: list[BaseException] = []

        def work(mine: list[tuple[int, Push]]) -> None:
            start.wait(PATIENCE_S)
            try:
                self._push_some(mine)
            except BaseException as error:
                wrong.append(error)

        parts = [[p for p in pushes if p[1].thread == t] for t in range(threads)]
        workers = [threading.Thread(target=work, args=(part,)) for part in parts]
        with quick_switches():
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        if wrong:
            raise wrong[0]

    def collect(self) -> None:
        """Wait for every op, and record its result."""
        self.release()
        # Once an op has finished, the ops that it pushed are in the table too.
        while left := [id_ for id_ in list(self.ops) if id_ not in self.results]:
            for id_ in left:
                self.results[id_] = result_of(self.ops[id_])

    def outcome(self, first: object = None, *, without: cs.Device | None = None) -> Run:
        """The visible outcome, except on a lost device."""
        device = [
            [] if self.devices[i] is without else array.numpy().tolist()
            for i, array in enumerate(self.arrays)
        ]
        numbers = {id_: op.number for id_, op in self.ops.items()}
        order = sorted(numbers, key=numbers.__getitem__)
        if self.program.is_ordered:
            order = list(self.program.by_id())
        return Run(
            device,
            [on_host(array).tolist() for array in self.host],
            self.logs,
            [token.version for token in self.tokens],
            self.results,
            self.ran,
            first,
            order=order,
            numbers=numbers,
            joined={id_ for id_, op in self.ops.items() if isinstance(op, JoinedLaunch)},
        )

    def release(self) -> None:
        """Release the latches so far."""
        for latch in self.latches:
            latch.release()

    def view(self, view: View):
        arrays = self.arrays if view.space == "d" else self.host
        return arrays[view.index][view.slice]

    def numbers(self, view: View):
        """The data of an op's function: NumPy's view of an array on the CPU."""
        return on_host(self.view(view))

    def place(self, place: View | Token):
        return self.view(place) if isinstance(place, View) else self.tokens[place.index]

    def _push_some(self, pushes: list[tuple[int, Push]]) -> None:
        try:
            with cs.use(self.engine):
                for number, push in pushes:
                    self.push(str(number), push)
        finally:
            self.release()

    def push(self, id_: str, push: Push) -> None:
        """Do one step; keep its op, or else its result, under its id."""
        step = push.step
        if isinstance(step, Fetch):
            self.release()
            self._fetch(id_, step.source)
        elif isinstance(step, (Read, Wait, WaitAll, ClearErrors)):
            self.release()
            answer = self._ask(step)
            # In unordered programs the answer depends on the time of the question.
            if self.program.is_ordered:
                self.results[id_] = answer
        elif isinstance(step, Renew):
            self.arrays[step.index] = cs.array(
                initial("d", step.index) + np.int32(step.value), device=self.devices[step.index]
            )
            self.results[id_] = None
        elif self.loses_device and isinstance(step, (Add, Total, Inner)):
            self._compute(id_, push)
        else:
            self.ops[id_] = self._op(id_, push)

    def _compute(self, id_: str, push: Push) -> None:
        """An operator, maybe on a lost device. There its kernel cannot be loaded, nor memory be
        allocated. The caller gets the error at once, and nothing was pushed."""
        try:
            self.ops[id_] = self._op(id_, push)
        except (cs.OpError, cs.CudaError) as error:
            cause = error.cause if isinstance(error, cs.OpError) else error
            if not (isinstance(cause, cs.CudaError) and cause.sticky):
                raise
            self.refused.append(id_)

    def _fetch(self, id_: str, source: View) -> None:
        host = np.empty(len(source.elements), np.int32)
        op = cs.copy(host, self.view(source), name=f"step {id_}")
        error = op.exception(PATIENCE_S)
        self.results[id_] = host.tolist() if error is None else failed(error.op)
        # Last, so that no other code records its result.
        self.ops[id_] = op

    def _ask(self, step: Step) -> object:
        match step:
            case Read(source):
                try:
                    return self.view(source).numpy().tolist()
                except cs.OpError as error:
                    return failed(error.op)
            case Wait(place):
                return raised(lambda: self.place(place).wait(PATIENCE_S))
            case WaitAll():
                return raised(lambda: self.engine.waitall(PATIENCE_S))
            case ClearErrors():
                self.collect()
                return self.engine.clear_errors()
        raise AssertionError(f"no such question: {step}")

    def _op(self, id_: str, push: Push) -> cs.Op:
        step, name = push.step, f"step {id_}"
        how = {"name": name, "priority": push.priority}
        if (
            getattr(self.engine, "_replays", False)
            and isinstance(step, (Mix, Set))
            and step.target.space == "d"
        ):
            return self._plain_launch(step, push.priority)
        match step:
            case Mix(target, source, factor) if target.space == "d":
                x, y, n = self.view(target), self.view(source), np.uint32(len(target.elements))
                return self.kernels["mix"][1, 32](
                    cs.strided(x),
                    cs.strided(y),
                    factor,
                    n,
                    target.step,
                    source.step,
                    **place_of_launch(x, y),
                    **how,
                )
            case Set(target, value) if target.space == "d":
                x, n = self.view(target), np.uint32(len(target.elements))
                return self.kernels["set"][1, 32](
                    cs.Out(cs.strided(x)), value, n, target.step, **how
                )
            case Add(target, source):
                x, y = self.view(target), self.view(source)
                return OPERATIONS["add"].into((x, y), x, sys._getframe())
            case Total(target, source):
                x, y = self.view(target), self.view(source)
                frame = sys._getframe()
                total = reduced("sum", (y,), frame, axes=(0,), dtype=np.dtype(np.int32))
                return OPERATIONS["add"].into((x, total), x, frame)
            case Inner(target, first, second):
                x, frame = self.view(target), sys._getframe()
                total = product(self.view(first), self.view(second), frame)
                return OPERATIONS["add"].into((x, total), x, frame)
            case Draw(target):
                x = self.view(target)
                drawn = self.rng.integers(MOST, shape=x.shape, dtype=x.dtype, device=x.device)
                return COPY.into((drawn,), x, sys._getframe())
            case Wild(target):
                x = cs.strided(self.view(target))
                return self.kernels["wild"][1, 1](x, **how)
            case Copy(target, source) if target.space == source.space == "h" and (
                not self.program.is_ordered
            ):
                # See the memory of `host`: this reads it at its place in the order.
                onto, of = self.view(target), self.view(source)
                return self.engine.push(
                    lambda: np.copyto(on_host(onto), on_host(of)), reads=of, writes=onto, **how
                )
            case Copy(target, source):
                return cs.copy(self.view(target), self.view(source), **how)
            case Batch():
                return self._batch(id_, push, step, how)
        counted, reads, writes, *device = self._function(id_, step)
        if device:
            where = {"device": device[0]}
        else:
            where = {"pool": "io"} if push.to_io else {}
        return self.engine.push(counted, reads=reads, writes=writes, **where, **how)

    def _plain_launch(self, step: Mix | Set, priority: int) -> cs.Op:
        """A launch that may be replayed: without a name, and with arrays as they are."""
        x, n = _as_it_is(self.view(step.target)), np.uint32(len(step.target.elements))
        if isinstance(step, Set):
            launch = self.kernels["set"][1, 32]
            return launch(cs.Out(x), step.value, n, step.target.step, priority=priority)
        y = _as_it_is(self.view(step.source))
        launch = self.kernels["mix"][1, 32]
        where = place_of_launch(self.view(step.target), self.view(step.source))
        return launch(
            x, y, step.factor, n, step.target.step, step.source.step, priority=priority, **where
        )

    def _function(self, id_: str, step: Step):
        """A counted function, its reads and writes, and its device, if any."""
        function = function_of(self, id_, step)

        def counted(*stream: cs.Stream) -> object:
            self.ran[id_] = self.ran.get(id_, 0) + 1
            return function(*stream)

        accesses = [*map(self.place, step.reads)], [*map(self.place, step.writes)]
        is_on_device = isinstance(step, Clear) or (
            isinstance(step, (Fail, Exhaust)) and step.on_device
        )
        device = [self.devices[step.target.index]] if is_on_device else []
        return (counted, *accesses, *device)

    def _batch(self, id_: str, push: Push, batch: Batch, how: dict[str, object]) -> cs.Op:
        steps = [
            self._launch(each, is_kept=batch.is_of_launches)
            if isinstance(each, (Mix, Set)) and each.target.space == "d"
            else self._function(f"{id_}.{k}", each)
            for k, each in enumerate(batch.steps)
        ]
        is_on_host = not steps or (isinstance(steps[0], tuple) and len(steps[0]) == 3)
        where = {"pool": "io"} if push.to_io and is_on_host else {}
        return self.engine.push_many(iter(steps), **where, **how)

    def _launch(self, step: Mix | Set, *, is_kept: bool) -> cs.PreparedLaunch:
        x, n = self.view(step.target), np.uint32(len(step.target.elements))
        source = self.view(step.source) if isinstance(step, Mix) else x
        key = step, x.region, source.region
        known = self.prepared.get(key) if is_kept else None
        if known is not None:
            return known
        args: tuple[object, ...] = cs.Out(cs.strided(x)), getattr(step, "value", 0)
        name, steps = "set", (step.target.step,)
        if isinstance(step, Mix):
            args = cs.strided(x), cs.strided(source), step.factor
            name, steps = "mix", (*steps, step.source.step)
        made = self.prepared[key] = self.kernels[name].prepare(
            grid=1, block=32, args=(*args, n, *steps), **place_of_launch(x, source)
        )
        return made

    def result(self, id_: str) -> object:
        return self.results[id_] if id_ in self.results else result_of(self.ops[id_])


def on_host(thing):
    """NumPy's view of an array on the CPU; any other object unchanged."""
    return view_of(thing) if isinstance(thing, cs.Array) and thing.device == "cpu" else thing


def _as_it_is(view: cs.Array) -> object:
    return view if view.is_contiguous else cs.strided(view)
