"""Random programs on streams of a machine, and the order that CUDA promises for them."""

from __future__ import annotations

from hypothesis import strategies as st

from cudasync.softgpu.core.machine import Machine
from cudasync.softgpu.core.streams.commands import Command, Step

STREAMS = 4


class Note(Command):
    """A command that writes its number into the trace, perhaps after a few turns."""

    __slots__ = ("number", "trace", "yields")

    def __init__(self, stream, trace, number, yields):
        super().__init__(stream)
        self.trace = trace
        self.number = number
        self.yields = yields

    def run(self):
        if self.yields:
            self.yields -= 1
            return Step.YIELDED
        self.trace.append(self.number)
        return Step.DONE


streams = st.integers(0, STREAMS - 1)
steps = st.one_of(
    st.tuples(st.just("run"), streams, st.sampled_from([0, 0, 0, 1, 3])),
    st.tuples(st.just("record"), streams, st.integers(0, 2)),
    st.tuples(st.just("wait"), streams, st.integers(0, 2)),
    st.tuples(st.sampled_from(["sync", "query", "destroy"]), streams, st.just(0)),
)
programs = st.lists(steps, max_size=30)


def play(program, scheduler, *, skip_wait=None):
    """Run a program; return the trace and the pairs (earlier, later) that CUDA promises.

    Stream 0 is the legacy default stream, 1 is blocking, the others are non-blocking. The promises
    are computed in the plainest way, from the sets of all predecessors.
    """
    machine = Machine(total_bytes=1 << 16, scheduler=scheduler)
    machine.push(machine.retain_primary(machine.device(0)))
    verbs = machine.streams
    real = [verbs.get(0), verbs.create(0), verbs.create(1), verbs.create(1)]
    events = [verbs.create_event(0) for _ in range(3)]
    before = [set() for _ in range(STREAMS)]
    recorded = [set() for _ in events]
    trace, promises = [], set()

    def join(index):
        joined = {0: (0, 1), 1: (0, 1)}.get(index, (index,))
        for other in joined:
            before[index] |= before[other]

    for number, (verb, index, what) in enumerate(program):
        stream = real[index]
        match verb:
            case "run":
                join(index)
                promises |= {(earlier, number) for earlier in before[index]}
                before[index].add(number)
                machine.executor.enqueue(Note(stream, trace, number, what))
            case "record":
                join(index)
                recorded[what] = set(before[index])
                verbs.record(events[what], stream)
            case "wait" if events[what].since_us >= 0:
                # A wait for an event that was never recorded enqueues nothing, so it joins no
                # stream.
                join(index)
                before[index] |= recorded[what]
                if number != skip_wait:
                    verbs.wait(stream, events[what])
            case "sync":
                verbs.synchronize(stream)
                assert before[index] <= set(trace)
            case "query":
                if verbs.query(stream):
                    assert before[index] <= set(trace)
            case "destroy" if index > 1:
                verbs.destroy(stream.handle)
                real[index] = verbs.create(1)
                before[index] = set()
    verbs.synchronize_context(machine.context())
    return trace, promises, machine
