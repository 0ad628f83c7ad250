"""Runs contenders against each other in one process and reports ratios.

A *bench* is a function `bench(loops) -> seconds`. A *case* sets several contenders to the same
work, one of them the baseline. Every round samples every contender of every case once, in an
order drawn from a fixed seed, and a ratio is taken between two samples of the *same* round: the
machines this runs on change their speed by a factor of two within minutes, and only what was
measured side by side can be compared.

Before any timing, each contender does a small fixed piece of work whose checksum must be the
same for all contenders of the case: a contender that skips work is an error, not a winner.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SEED = 20240601

# One sample lasts at least this long, so that the clock and a stray interrupt weigh little.
SAMPLE_S = 0.02
SMALL_SAMPLE_S = 0.0002


class ChecksumError(Exception):
    """Two contenders of one case did not do the same work."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do a case's work.

    `bench(loops)` returns seconds and leaves nothing running behind; `checksum()` does a fixed
    piece of the work, untimed, and returns a number that says what was done.
    """

    name: str
    bench: Callable[[int], float]
    checksum: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Case:
    """Contenders for the same work; `operations` is how many of `unit` one loop does."""

    name: str
    contenders: Sequence[Contender]
    baseline: str
    operations: int = 1
    unit: str = "op"
    most_loops: int = 1 << 20  # where a loop leaves work queued, how much may pile up


@dataclass(slots=True)
class Samples:
    """What one contender of one case took: a value per round, in nanoseconds per operation."""

    loops: int
    nanoseconds: list[float] = field(default_factory=list)


class Session:
    """One run of one bench program: its parameters, its cases, what they took.

    Cases are added by the program's `build(session)`. Things that must be closed afterwards go
    on `closing`, and are closed in reverse order however the run ends.
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
        self.stopping = False  # set to end the run at the next pause between two samples
        self.closing = ExitStack()
        self._settings = dict(settings or {})
        self._progress = progress

    def parameter(self, name: str, *, small: int, large: int) -> int:
        """A size with two values, one for tests and one for measuring; `--set` overrides both."""
        value = self._settings.get(name, small if self.small else large)
        self.parameters[name] = value
        return value

    def add(self, case: Case) -> None:
        """Take a case in, unless `--only` leaves it out."""
        if self.only in case.name:
            self.cases.append(case)

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
            self._pause(f"{case.name}: checking")
            self.checksums[case.name] = agreed_checksum(case)
            for contender in case.contenders:
                loops = self._calibrate(case, contender)
                self.samples[case.name, contender.name] = Samples(loops)
        for number in range(1, self.rounds + 1):
            for case in order.sample(self.cases, len(self.cases)):
                for contender in order.sample(list(case.contenders), len(case.contenders)):
                    self._pause(f"round {number} of {self.rounds}: {case.name}")
                    samples = self.samples[case.name, contender.name]
                    seconds = sample(contender, samples.loops)
                    samples.nanoseconds.append(seconds * 1e9 / (samples.loops * case.operations))
        self._progress("")

    def _pause(self, text: str) -> None:
        """Between two samples: say what comes, and stop if that was asked for.

        Contenders hold locks and threads in the middle of a sample, and an exception that lands
        between two bytecodes there may leave a lock held; here there is nothing to leave behind.
        """
        if self.stopping:
            raise KeyboardInterrupt
        self._progress(text)

    def _calibrate(self, case: Case, contender: Contender) -> int:
        """How many loops make a sample that is long enough."""
        enough = SMALL_SAMPLE_S if self.small else SAMPLE_S
        loops = 1
        while loops < case.most_loops:
            if sample(contender, loops) >= enough:
                break
            self._pause(f"{case.name}: {contender.name}: {loops} loops are too few")
            loops *= 2
        return min(loops, case.most_loops)


def sample(contender: Contender, loops: int) -> float:
    """One timed sample, begun with nothing left to collect from the last one."""
    gc.collect()
    return contender.bench(loops)


def agreed_checksum(case: Case) -> int:
    """The checksum that every contender of the case gives; `ChecksumError` where they differ."""
    sums = {contender.name: contender.checksum() for contender in case.contenders}
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
    """Each case as plain values: medians and spread per contender, ratios to the baseline."""
    cases: list[dict[str, object]] = []
    for case in session.cases:
        base = session.samples[case.name, case.baseline].nanoseconds
        contenders = {}
        for contender in case.contenders:
            samples = session.samples[case.name, contender.name]
            ratios = [mine / its for mine, its in zip(samples.nanoseconds, base, strict=True)]
            over = [mine - its for mine, its in zip(samples.nanoseconds, base, strict=True)]
            contenders[contender.name] = {
                "loops": samples.loops,
                "ns": spread(samples.nanoseconds),
                "ratio": spread(ratios),
                "overhead_ns": spread(over),
            }
        cases.append(
            {
                "id": case.name,
                "unit": case.unit,
                "operations": case.operations,
                "baseline": case.baseline,
                "checksum": session.checksums[case.name],
                "contenders": contenders,
            }
        )
    return cases


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, the middle half, and the extremes, to four digits."""
    if len(values) > 1:
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    else:
        low = high = values[0]
    named = {
        "median": statistics.median(values),
        "q1": low,
        "q3": high,
        "least": min(values),
        "most": max(values),
    }
    return {name: float(f"{value:.4g}") for name, value in named.items()}


def progress_line(text: str) -> None:
    """Show one line of progress on stderr, over the last one; nothing where nobody watches."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
