"""Random programs of loops, for replay: a body of few steps comes again and again.

The body is mostly launches, so that a sequence is found and joins runs. Other steps seal runs:
waits, host ops, copies, arrays that die and come again, failures, launches of other threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from helpers.engine_programs.steps import Mix, Program, Push, Set
from helpers.engine_programs.strategies import Room, kinds, pushes, rooms, step
from helpers.engine_programs.views import contiguous
from hypothesis import strategies as st

from cudasync.engine.replay import learning, run, sequence, tape

# Launches of arrays as they are, and some of views with gaps, which are not replayed.
_FACTORS = st.integers(1, 3)
# However busy the machine is, no launch takes longer.
_HOLD_S = 1e9
# Launches of the body with other numbers in each round.
_CHANGING = st.sets(st.integers(0, 5), max_size=2)
_CHANGES = st.lists(st.tuples(st.integers(0, 60), st.booleans(), st.integers(4, 9)), max_size=3)


def _launches(room: Room, threads: int) -> st.SearchStrategy[Push]:
    device = contiguous("d", tuple(range(len(room.devices))))
    # A total is two launches: those of other threads may come in between.
    totals = [st.builds(room.total, device, device)] * (threads == 1)
    steps = st.one_of(
        st.builds(room.mix, device, device, _FACTORS),
        st.builds(room.mix, device, device, _FACTORS),
        st.builds(Set, device, _FACTORS),
        st.builds(room.add, device, device),
        *totals,
        step("mix", room, False),
    )
    return st.builds(Push, steps, st.integers(0, threads - 1))


def _of_round(push: Push, number: int) -> Push:
    """The same launch with a number of this round."""
    step = push.step
    if isinstance(step, Mix):
        return replace(push, step=replace(step, factor=step.factor + number))
    return replace(push, step=replace(step, value=number)) if isinstance(step, Set) else push


@st.composite
def looping_programs(draw, fails: bool = False, threads: int = 1) -> Program:
    """Two loops, one after the other. Each round may be interrupted by a step of any kind."""
    room = replace(draw(rooms), has_parts=threads == 1)
    launch = _launches(room, threads)
    other = pushes(room, kinds(ordered=threads == 1, fails=fails), fails, threads)
    made: list[Push] = []
    for _ in range(draw(st.integers(1, 2))):
        body = draw(st.lists(launch, min_size=1, max_size=5))
        rounds = draw(st.integers(3, 9))
        # Steps in the body of every round, and steps of one round alone.
        for each in draw(st.lists(other, max_size=1)):
            body.insert(draw(st.integers(0, len(body))), each)
        changing = draw(_CHANGING)
        loop = [
            _of_round(each, number) if at in changing else each
            for number in range(rounds)
            for at, each in enumerate(body)
        ]
        # A number, or the memory, of one launch of one round.
        for at, changed, factor in draw(_CHANGES):
            at %= len(loop)
            if isinstance(loop[at].step, Mix):
                view = loop[at].step.source if changed else loop[at].step.target
                loop[at] = replace(loop[at], step=room.mix(loop[at].step.target, view, factor))
        for each in draw(st.lists(other, max_size=3)):
            loop.insert(draw(st.integers(0, len(loop))), each)
        made += loop
    return Program(room.devices, room.hosts, room.tokens, tuple(made))


@contextmanager
def eager_replay(most: int | None = None) -> Iterator[Counter[str]]:
    """Replay each second repetition, however slow or short, in runs of few launches. Counts the
    runs that were issued, and their launches. A run has at most `most`, as if the program were so
    slow."""
    least = {
        (learning, "ROUNDS"): 2,
        (learning, "LEAST"): 2,
        (tape, "SEARCH_EVERY"): 1,
        (tape, "CHANGING"): 6,
        (tape, "FIRST_PAUSE"): 1,
        (tape, "LONGER"): 1,
        (sequence, "UNIT"): 6,
        (sequence, "HOLD_S"): _HOLD_S,
        (sequence, "USUAL"): 2,
        (sequence, "PATIENCE"): 1 << 30,
        (tape, "PATIENCE"): 1 << 30,
    }
    before = {key: getattr(*key) for key in least}
    counted: Counter[str] = Counter()
    seal = run.Run._note_pace

    def counting(self, count: int) -> None:
        counted["runs"] += 1
        counted["launches"] += count
        seal(self, count)
        if most is not None:
            self.sequence._paces_s = (_HOLD_S / most,) * 2

    try:
        for (module, name), value in least.items():
            setattr(module, name, value)
        run.Run._note_pace = counting
        tape.LOCAL.tape.forget()
        yield counted
    finally:
        run.Run._note_pace = seal
        for (module, name), value in before.items():
            setattr(module, name, value)
        tape.LOCAL.tape.forget()
