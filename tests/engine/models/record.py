"""Ops end while threads ask for their records and register for the end, in every interleaving."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from helpers.concurrency.model_checking import Model
from helpers.concurrency.planner_rig import Rig

from cudasync.engine.failure import Failure
from cudasync.engine.ledger import poison
from cudasync.engine.log import fences
from cudasync.engine.log import node as nodes
from cudasync.engine.log.node import JoinGate, Node
from cudasync.engine.op import Op

Workers = Sequence[Callable[[], object]]


class _Asking(Model):
    """Three threads ask for the record of one op."""

    block = "record.of"

    def __init__(self) -> None:
        self.rig = Rig()
        self.op = self.rig.make("a", ">x")
        # One list per thread: a shared list would be one more shared object.
        self.seen: list[list[Node]] = [[], [], []]

    def workers(self) -> Workers:
        return [lambda: self.ask(0), lambda: self.ask(1), lambda: self.ask(2)]

    def ask(self, index: int) -> None:
        record = self.of(self.op)
        # The record of a finished op notifies no thread, and may be any record.
        if not self.op.finished:
            self.seen[index].append(record)

    def of(self, op: Op) -> Node:
        return nodes.of(op)

    def holds(self) -> bool:
        if not self.op.finished:
            # The entry that makes threads agree on a record is removed at the op's end.
            nodes.finish(self.op)
        assert self.op not in nodes._NODES, "what is kept for agreeing stays behind"
        return len({id(each) for seen in self.seen for each in seen}) <= 1


class TheFirstRecordMadeWins(_Asking):
    def holds(self) -> bool:
        return super().holds() and all(seen == [self.op._node] for seen in self.seen)


class TheFirstRecordMadeWinsUntilTheEnd(_Asking):
    def workers(self) -> Workers:
        return [lambda: self.ask(0), lambda: self.ask(1), lambda: nodes.finish(self.op)]


class TheFirstRecordStaysAfterTheEnd(_Asking):
    """One thread asks while another plans and ends the op: the first record remains."""

    def workers(self) -> Workers:
        return [lambda: self.ask(0), self.plan_and_end]

    def plan_and_end(self) -> None:
        self.kept = self.of(self.op)
        nodes.finish(self.op)

    def holds(self) -> bool:
        return super().holds() and self.op._node is self.kept


class RecordThatComesLate(TheFirstRecordStaysAfterTheEnd):
    planted = "set whether or not the op is over: a second record takes the place of the first"

    def of(self, op: Op) -> Node:
        record = op._node
        if record is None:
            record = op._node = nodes._NODES.setdefault(op, Node())
            if op.finished:
                nodes._NODES.pop(op, None)
        return record


class RecordByCheckThenSet(_Asking):
    planted = "look, then set: the second record takes the place of the first"

    def of(self, op: Op) -> Node:
        if op._node is None:
            op._node = Node()
        return op._node


class _Ear:
    """A listener."""

    def __init__(self) -> None:
        self.heard = False

    def notify(self, op: Op) -> None:
        assert op.finished, "told of an end that has not come"
        self.heard = True


class _Ending(Model):
    """Two threads register for the end of an op, and one thread ends it."""

    block = "record.finish"

    def __init__(self) -> None:
        self.rig = Rig()
        self.op = self.rig.make("a", ">x")
        self.ears = [_Ear(), _Ear()]

    def workers(self) -> Workers:
        return [lambda: self.register(0), lambda: self.register(1), self.end]

    def register(self, index: int) -> None:
        """Append, then look, as a planner and `skip` do."""
        ear = self.ears[index]
        nodes.of(self.op).listeners.append(ear)
        if self.op.finished:
            ear.notify(self.op)

    def end(self) -> None:
        nodes.finish(self.op)

    def holds(self) -> bool:
        assert self.op not in nodes._NODES, "what is kept for agreeing stays behind"
        return all(ear.heard for ear in self.ears)


class WhoRegistersLearnsOfTheEnd(_Ending):
    pass


class WhoRegistersLearnsOfAnEndByTwo(_Ending):
    """Two threads end the op: one may stand in for the other."""

    def workers(self) -> Workers:
        self.ears = self.ears[:1]
        return [lambda: self.register(0), self.end, self.end]


class ListenerThatLooksFirst(_Ending):
    planted = "look, then append: the end comes in between, and nobody tells"

    def register(self, index: int) -> None:
        ear = self.ears[index]
        record = nodes.of(self.op)
        if self.op.finished:
            ear.notify(self.op)
        else:
            record.listeners.append(ear)


class EndThatTellsFirst(_Ending):
    planted = "tell, then set: who appends in between sees no end, and is not told"

    def end(self) -> None:
        record = nodes.of(self.op)
        for ear in record.listeners:
            self.ears[self.ears.index(ear)].heard = True  # type: ignore[arg-type]
        self.op.finished = True
        nodes._NODES.pop(self.op, None)


class _Calling(_Ending):
    """One thread adds a callback while another ends the op: the callback is called once."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def workers(self) -> Workers:
        return [self.add, self.end]

    def add(self) -> None:
        self.op.add_done_callback(lambda: self.calls.append(1))

    def holds(self) -> bool:
        return self.calls == [1]


class ACallbackIsCalledOnce(_Calling):
    pass


class ACallbackIsCalledOnceByOneOfTwo(_Calling):
    def workers(self) -> Workers:
        return [self.add, self.end, self.end]


class CallbackThatLooksFirst(_Calling):
    planted = "look, then put: the end comes in between, and nobody calls"

    def add(self) -> None:
        record = nodes.of(self.op)
        if self.op.finished:
            self.calls.append(1)
        else:
            record.callbacks.append(lambda: self.calls.append(1))


class _EndingFence(Model):
    """Two threads end a fence behind an op that has failed."""

    block = "fences.issue"

    def __init__(self) -> None:
        self.rig = Rig()
        failed = self.rig.make("a", ">x")
        failed.failure = Failure(1, "a", "here:1", ValueError())
        nodes.finish(failed)
        self.fence = self.rig.make("fence", "x>")
        nodes.of(self.fence).gates.append(JoinGate(self.fence, {}, (failed,)))

    def workers(self) -> Workers:
        return [self.end, self.end]

    def end(self) -> None:
        fences._FENCES.issue(self.fence)
        assert self.fence.is_poisoned, "it is over, and a waiter would raise nothing"

    def holds(self) -> bool:
        return self.fence.finished and self.fence.is_poisoned


class AFenceThatTwoThreadsEndKeepsItsFailure(_EndingFence):
    pass


class FenceWhoseFailureIsTakenAway(_EndingFence):
    planted = "look at the emptied gate of a fence that is over, and store that nothing failed"

    def end(self) -> None:
        if not self.fence.finished:
            gate = nodes.gate_of(self.fence)
            self.fence.failure = poison(self.fence, gate.sources)
            # What matters of `nodes.finish`: fewer steps have fewer orders.
            self.fence.finished = True
            gate.let_go()
