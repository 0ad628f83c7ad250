"""Ops that end while others ask for their records and want to be told, under every interleaving."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from helpers.models import Model
from helpers.planning import Rig

from cudasync.engine import record as records
from cudasync.engine.op import Op
from cudasync.engine.record import Record

Workers = Sequence[Callable[[], object]]


class _Asking(Model):
    """Three threads ask for the record of one op."""

    block = "record.of"

    def __init__(self) -> None:
        self.rig = Rig()
        self.op = self.rig.make("a", ">x")
        # One list per thread, so that keeping it is not one more thing that they share.
        self.seen: list[list[Record]] = [[], [], []]

    def workers(self) -> Workers:
        return [lambda: self.ask(0), lambda: self.ask(1), lambda: self.ask(2)]

    def ask(self, index: int) -> None:
        record = self.of(self.op)
        # That of an op that is over tells nobody anything, and may be any.
        if not self.op.finished:
            self.seen[index].append(record)

    def of(self, op: Op) -> Record:
        return records.of(op)

    def holds(self) -> bool:
        if not self.op.finished:
            # What is kept for agreeing goes with the end of an op.
            records.finish(self.op)
        assert self.op not in records._RECORDS, "what is kept for agreeing stays behind"
        return len({id(each) for seen in self.seen for each in seen}) <= 1


class TheFirstRecordMadeWins(_Asking):
    def holds(self) -> bool:
        return super().holds() and all(seen == [self.op._record] for seen in self.seen)


class TheFirstRecordMadeWinsUntilTheEnd(_Asking):
    def workers(self) -> Workers:
        return [lambda: self.ask(0), lambda: self.ask(1), lambda: records.finish(self.op)]


class TheFirstRecordStaysAfterTheEnd(_Asking):
    """One asks while another plans and ends the op: its plan can still be looked up."""

    def workers(self) -> Workers:
        return [lambda: self.ask(0), self.plan_and_end]

    def plan_and_end(self) -> None:
        self.kept = self.of(self.op)
        records.finish(self.op)

    def holds(self) -> bool:
        return super().holds() and self.op._record is self.kept


class RecordThatComesLate(TheFirstRecordStaysAfterTheEnd):
    planted = "set whether or not the op is over: a second record takes the place of the first"

    def of(self, op: Op) -> Record:
        record = op._record
        if record is None:
            record = op._record = records._RECORDS.setdefault(op, Record())
            if op.finished:
                records._RECORDS.pop(op, None)
        return record


class RecordByCheckThenSet(_Asking):
    planted = "look, then set: the second record takes the place of the first"

    def of(self, op: Op) -> Record:
        if op._record is None:
            op._record = Record()
        return op._record


class _Ear:
    """A listener."""

    def __init__(self) -> None:
        self.heard = False

    def told(self, op: Op) -> None:
        assert op.finished, "told of an end that has not come"
        self.heard = True


class _Ending(Model):
    """Two threads want to be told of the end of an op, and one ends it."""

    block = "record.finish"

    def __init__(self) -> None:
        self.rig = Rig()
        self.op = self.rig.make("a", ">x")
        self.ears = [_Ear(), _Ear()]

    def workers(self) -> Workers:
        return [lambda: self.register(0), lambda: self.register(1), self.end]

    def register(self, index: int) -> None:
        """As a planner does, and `skip`: append, then look."""
        ear = self.ears[index]
        records.of(self.op).listeners.append(ear)
        if self.op.finished:
            ear.told(self.op)

    def end(self) -> None:
        records.finish(self.op)

    def holds(self) -> bool:
        assert self.op not in records._RECORDS, "what is kept for agreeing stays behind"
        return all(ear.heard for ear in self.ears)


class WhoRegistersLearnsOfTheEnd(_Ending):
    pass


class WhoRegistersLearnsOfAnEndByTwo(_Ending):
    """Two threads end the op: one stands in for the other."""

    def workers(self) -> Workers:
        self.ears = self.ears[:1]
        return [lambda: self.register(0), self.end, self.end]


class ListenerThatLooksFirst(_Ending):
    planted = "look, then append: the end comes in between, and nobody tells"

    def register(self, index: int) -> None:
        ear = self.ears[index]
        record = records.of(self.op)
        if self.op.finished:
            ear.told(self.op)
        else:
            record.listeners.append(ear)


class EndThatTellsFirst(_Ending):
    planted = "tell, then set: who appends in between sees no end, and is not told"

    def end(self) -> None:
        record = records.of(self.op)
        for ear in record.listeners:
            self.ears[self.ears.index(ear)].heard = True  # type: ignore[arg-type]
        self.op.finished = True
        records._RECORDS.pop(self.op, None)


class _Calling(_Ending):
    """One adds a callback while another ends the op: it is called once."""

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
        record = records.of(self.op)
        if self.op.finished:
            self.calls.append(1)
        else:
            record.callbacks.append(lambda: self.calls.append(1))
