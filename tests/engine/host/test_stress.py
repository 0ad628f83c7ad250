"""Eight threads push at once while the interpreter switches threads all the time.

Each op checks two things when it runs: no conflicting op uses its variables, and exactly the writes
that its own thread pushed before it are done. An op cannot see the order between ops of different
threads. The marks that ops leave on their variables show that order.
"""

from __future__ import annotations

import sys
import threading
from array import array
from collections.abc import Callable
from itertools import count, pairwise
from random import Random
from typing import Any

import pytest

import cudasync as cs

THREADS = 8
VARIABLES = 12
# A pushing thread waits after so many pushes.
BURST = 400
PATIENCE_S = 900.0


class Watched:
    """A variable that records its present users and its past users."""

    def __init__(self, name: str) -> None:
        self.var = cs.Var(name)
        self.readers: set[int] = set()
        self.writers: set[int] = set()
        # For each pushing thread, the number of its finished writes. The writes update it.
        self.writes_done = [0] * THREADS
        # Marks: twice the op's key, plus one for a write. Two reads may append at once, so this is
        # a list: an `array` is unsafe for that without a GIL.
        self.marks: list[int] = []


class Pusher:
    """The pushes of one thread, determined by its seed."""

    def __init__(
        self, index: int, total: int, engine: cs.Engine | Forgetful, watched: list[Watched]
    ) -> None:
        self.index = index
        self.numbers = array("q")
        self.violations: list[str] = []
        self._total = total
        self._engine = engine
        self._watched = watched
        self._random = Random(1000 + index)
        self.writes_pushed = [0] * VARIABLES

    def run(self) -> None:
        ops: list[cs.Op] = []
        for step in range(self._total):
            ops.append(self._push(step))
            if len(ops) == BURST or step == self._total - 1:
                # Earlier ops may still run, but their places in the order are fixed.
                ops[-1].wait(PATIENCE_S)
                self.numbers.extend(op.number for op in ops)
                ops.clear()

    def _push(self, step: int) -> cs.Op:
        draw = self._random
        chosen = draw.sample(range(VARIABLES), draw.choice((1, 2, 3)))
        written = chosen[: draw.choice((0, 1, 1, 2))]
        read = chosen[len(written) :]
        body = self._body(step * THREADS + self.index, read, written)
        for each in written:
            self.writes_pushed[each] += 1
        return self._engine.push(
            body,
            reads=[self._watched[each].var for each in read],
            writes=[self._watched[each].var for each in written],
            name="stress",
            priority=draw.choice((0, 0, 1)),
        )

    def _body(self, key: int, read: list[int], written: list[int]) -> Callable[[], None]:
        mine = self.index
        reads = [(self._watched[each], self.writes_pushed[each]) for each in read]
        writes = [(self._watched[each], self.writes_pushed[each]) for each in written]
        # The second op on a variable sees the first, because both register before they look.
        alone = {key}
        wrong = self.violations.append

        def body() -> None:
            for at, done in reads:
                at.readers.add(key)
                if at.writers or at.writes_done[mine] != done:
                    wrong(f"op {key} read {at.var.name} beside {at.writers} or out of turn")
                at.marks.append(2 * key)
            for at, done in writes:
                at.writers.add(key)
                if at.writers != alone or at.readers or at.writes_done[mine] != done:
                    wrong(f"op {key} wrote {at.var.name} beside others or out of turn")
                at.marks.append(2 * key + 1)
                at.writes_done[mine] += 1
            for at, _ in writes:
                at.writers.discard(key)
            for at, _ in reads:
                at.readers.discard(key)

        return body


def disorder(watched: Watched, number_of: Callable[[int], int]) -> list[str]:
    """The places where marks on a variable break the order of the pushes. Two reads may swap."""
    found = []
    # The newest write so far, and the newest read since that write.
    last_write = last_read = 0
    for mark in watched.marks:
        number = number_of(mark >> 1)
        if number < (max(last_write, last_read) if mark & 1 else last_write):
            found.append(f"{watched.var.name}: op {number} after {last_write} and {last_read}")
        if mark & 1:
            last_write, last_read = number, 0
        else:
            last_read = max(last_read, number)
    return found


def stress(engine: cs.Engine | Forgetful, total: int) -> list[str]:
    """Push `total` ops from all threads; returns the violations."""
    watched = [Watched(f"v{i}") for i in range(VARIABLES)]
    pushers = [Pusher(i, total // THREADS, engine, watched) for i in range(THREADS)]
    threads = [threading.Thread(target=each.run, daemon=True) for each in pushers]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        engine.waitall(PATIENCE_S)
    finally:
        sys.setswitchinterval(interval)
    wrong = [each for pusher in pushers for each in pusher.violations]
    for index, each in enumerate(watched):
        wrong += disorder(each, lambda key: pushers[key % THREADS].numbers[key // THREADS])
        pushed = [pusher.writes_pushed[index] for pusher in pushers]
        if each.writes_done != pushed:
            wrong.append(f"{each.var.name}: {pushed} writes were pushed, {each.writes_done} done")
        if each.var.version != sum(pushed):
            wrong.append(f"{each.var.name}: version {each.var.version} after {sum(pushed)} writes")
    numbers = sorted(number for pusher in pushers for number in pusher.numbers)
    if any(before == after for before, after in pairwise(numbers)):
        wrong.append("two ops have one number")
    if any(before > after for each in pushers for before, after in pairwise(each.numbers)):
        wrong.append("a thread's ops are not numbered in the order that it pushed them")
    return wrong


@pytest.mark.parametrize("total", [10_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_pushes_of_eight_threads_keep_every_hazard(total):
    with cs.Engine(workers=3) as engine:
        wrong = stress(engine, total)
    assert not wrong, "\n".join(wrong[:20])


class Forgetful:
    """An engine that does not learn the writes of every seventh op."""

    def __init__(self, engine: cs.Engine) -> None:
        self.waitall = engine.waitall
        self._engine = engine
        self._calls = count()

    def push(self, fn: Callable[[], None], **keywords: Any) -> cs.Op:
        if next(self._calls) % 7 == 0:
            keywords["writes"] = ()
        return self._engine.push(fn, **keywords)


def test_ops_that_forget_a_variable_are_found():
    with cs.Engine(workers=3) as engine:
        wrong = stress(Forgetful(engine), 4000)
    for word in ("out of turn", "after", "version"):
        assert any(word in each for each in wrong)
