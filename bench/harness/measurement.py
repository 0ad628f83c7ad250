"""Runs contenders against each other in one process and reports ratios.

A *bench* is a function `bench(loops) -> seconds`. A *case* gives several contenders the same work;
one of them is the baseline. Every round samples every contender of every case once, in an order
drawn from a fixed seed. A ratio is taken between two samples of the *same* round: our machines
change their speed by a factor of two within minutes, so only neighbouring samples are comparable.

Before any timing, each contender does a small fixed piece of work. All contenders of the case must
give the same checksum: a contender that skips work is an error, not a winner.

The garbage collector is on, as in a program. Objects that exist when the rounds begin are frozen,
so that no collection looks through them. Each sample begins with nothing left to collect.
"""

from __future__ import annotations

import gc
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from bench.harness.goals import judged, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.harness.goals import Goal

SEED = 20240601

# One sample lasts at least this long, so that the clock and a stray interrupt weigh little.
SAMPLE_S = 0.02
SMALL_SAMPLE_S = 0.0002


class ChecksumError(Exception):
    """Two contenders of one case did not do the same work."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do a case's work.

    `bench(loops)` returns seconds and leaves nothing running. `checksum()` does a fixed piece of
    the work, untimed, and returns a number that identifies the work. It is None for a contender
    whose name says that it does other work, such as a bound.
    """

    name: str
    bench: Callable[[int], float]
    checksum: Callable[[], int] | None
    operations: int | None = None  # in one loop, if it differs from the case's number
    every: int = 1  # a slow contender may run only in every n-th round


@dataclass(frozen=True, slots=True)
class Case:
    """Contenders for the same work. One loop does `operations` of `unit`."""

    name: str
    contenders: Sequence[Contender]
    baseline: str
    operations: int = 1
    unit: str = "op"
    most_loops: int = 1 << 20  # the limit on queued work, if a loop leaves work queued
    goals: Sequence[Goal] = ()

    def work(self, contender: Contender) -> int:
        """The number of operations in one loop of `contender`."""
        return contender.operations or self.operations


@dataclass(slots=True)
class Samples:
    """The times of one contender of one case: by round, in nanoseconds per operation."""

    loops: int
    nanoseconds: dict[int, float] = field(default_factory=dict)


class Session:
    """One run of one bench program: its parameters, its cases, their times.

    The program's `build(session)` adds the cases. Objects that must be closed go on `closing`, and
    are closed in reverse order, however the run ends.
    """

    def __init__(
        self,
        *,
        small: bool = False,
        rounds: int | None = None,
        seed: int = SEED,
        only: str = "",
        settings: dict[str, int] | None = None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.small = small
        self.rounds = rounds or (2 if small else 15)
        self.seed = seed
        self.only = only
        self.parameters: dict[str, int] = {}
        self.cases: list[Case] = []
        self.checksums: dict[str, int] = {}
        self.samples: dict[tuple[str, str], Samples] = {}
        self.device = ""
        self.versions: dict[str, str] = {}  # of the peers that took part
        self.absent: dict[str, str] = {}  # the peers that did not take part, with the reason
        self.measures: list[dict[str, object]] = []
        self.at_end: list[Callable[[Session], None]] = []  # called when all rounds are done
        self.stopping = False  # set to end the run at the next pause between two samples
        self.closing = ExitStack()
        self._settings = dict(settings or {})
        self._progress = progress

    def parameter(self, name: str, *, small: int, large: int) -> int:
        """A size with two values, one for tests and one for measuring; `--set` overrides both."""
        value = self._settings.get(name, small if self.small else large)
        self.parameters[name] = value
        return value

    def wants(self, name: str) -> bool:
        """False for a case or measure that `--only` leaves out."""
        return self.only in name

    def add(self, case: Case) -> None:
        """Take a case in, unless `--only` leaves it out."""
        if self.wants(case.name):
            self.cases.append(case)

    def measure(self, name: str, value: float, unit: str, at_most: float | None = None) -> None:
        """Report a number that is no time (a count, an amount of memory), with its limit."""
        found = {"id": name, "value": float(f"{value:.4g}"), "unit": unit, "at_most": at_most}
        self.measures.append(found | {"met": at_most is None or value <= at_most})

    def run(self) -> None:
        """Check that contenders agree, then sample them in interleaved rounds."""
        unknown = set(self._settings) - set(self.parameters)
        if unknown:
            known = ", ".join(sorted(self.parameters)) or "none"
            raise ValueError(f"no parameter {', '.join(sorted(unknown))}; there are: {known}")
        if not self.cases:
            raise ValueError(f"no case has {self.only!r} in its name")
        order = Random(self.seed)
        for case in self.cases:
            self.pause(f"{case.name}: checking")
            self.checksums[case.name] = agreed_checksum(case)
            for contender in case.contenders:
                loops = self._calibrate(case, contender)
                self.samples[case.name, contender.name] = Samples(loops)
        gc.collect()
        gc.freeze()
        try:
            for number in range(self.rounds):
                self._round(number, order)
        finally:
            gc.unfreeze()
        for conclude in self.at_end:
            conclude(self)
        self._progress("")

    def _round(self, number: int, order: Random) -> None:
        for case in order.sample(self.cases, len(self.cases)):
            for contender in order.sample(list(case.contenders), len(case.contenders)):
                if number % contender.every:
                    continue
                self.pause(f"round {number + 1} of {self.rounds}: {case.name}")
                samples = self.samples[case.name, contender.name]
                seconds = sample(contender, samples.loops)
                done = samples.loops * case.work(contender)
                samples.nanoseconds[number] = seconds * 1e9 / done

    def pause(self, text: str) -> None:
        """Show the next step between two samples, and stop if the user asked for it.

        In the middle of a sample, contenders use locks and threads. An exception between two
        bytecodes there may leave a lock taken. Here nothing can be left behind.
        """
        if self.stopping:
            raise KeyboardInterrupt
        self._progress(text)

    def _calibrate(self, case: Case, contender: Contender) -> int:
        """The number of loops that make a long enough sample."""
        enough = SMALL_SAMPLE_S if self.small else SAMPLE_S
        loops = 1
        while loops < case.most_loops:
            if sample(contender, loops) >= enough:
                break
            self.pause(f"{case.name}: {contender.name}: {loops} loops are too few")
            loops *= 2
        return min(loops, case.most_loops)


def sample(contender: Contender, loops: int) -> float:
    """One timed sample, after a collection of the last sample's garbage."""
    gc.collect()
    return contender.bench(loops)


def agreed_checksum(case: Case) -> int:
    """The checksum of every contender of the case; `ChecksumError` if they differ."""
    sums = {each.name: each.checksum() for each in case.contenders if each.checksum is not None}
    if len(set(sums.values())) != 1:
        told = ", ".join(f"{name} {value:#x}" for name, value in sums.items())
        raise ChecksumError(f"{case.name}: contenders did different work: {told}")
    return sums[case.baseline]


def repeat(action: Callable[[], object], *, after: Callable[[], object] | None = None) -> Callable:
    """A bench that calls `action` in a loop; `after` clears up what it queued, untimed."""

    def bench(loops: int) -> float:
        steps = range(loops)
        start = time.perf_counter()
        for _ in steps:
            action()
        seconds = time.perf_counter() - start
        if after is not None:
            after()
        return seconds

    return bench


def summary(session: Session) -> list[dict[str, object]]:
    """Each case as plain values: medians and spread per contender, and ratios to the baseline."""
    cases: list[dict[str, object]] = []
    for case in session.cases:
        taken = {each.name: session.samples[case.name, each.name] for each in case.contenders}
        base = taken[case.baseline].nanoseconds
        contenders = {}
        for name, samples in taken.items():
            both = [(mine, base[at]) for at, mine in samples.nanoseconds.items() if at in base]
            contenders[name] = {
                "loops": samples.loops,
                "rounds": len(samples.nanoseconds),
                "ns": spread(list(samples.nanoseconds.values())),
                "ratio": spread([mine / its for mine, its in both]),
                "overhead_ns": spread([mine - its for mine, its in both]),
            }
        by_round = {name: samples.nanoseconds for name, samples in taken.items()}
        cases.append(
            {
                "id": case.name,
                "unit": case.unit,
                "operations": case.operations,
                "baseline": case.baseline,
                "checksum": session.checksums[case.name],
                "contenders": contenders,
                "goals": [judged(goal, by_round) for goal in case.goals],
            }
        )
    return cases


def progress_line(text: str) -> None:
    """Show one line of progress on stderr, over the last one; only on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
