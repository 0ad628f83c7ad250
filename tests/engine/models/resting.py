"""Histories that are forgotten and looked up, by a combiner and by a superseded combiner."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from helpers.concurrency.model_checking import Model

import cudasync as cs
from cudasync.engine.hazards.history import History
from cudasync.engine.host.repeated_ops import Resolved
from cudasync.engine.log.histories import MADE, history_of, let_rest

Workers = Sequence[Callable[[], object]]


class LookAndMake(Model):
    """A superseded combiner looks for histories while the next combiner makes the first one."""

    block = "histories.MADE"

    def __init__(self) -> None:
        self.variable = cs.Var("x")
        self.pushed = Resolved((((), (), ()), (), (self.variable,)))

    def workers(self) -> Workers:
        return [self.pushed.has_histories, self.make]

    def make(self) -> None:
        history_of(self.variable, 2)

    def holds(self) -> bool:
        return self.pushed.has_histories()


class LookAndMakeMarkedFirst(LookAndMake):
    planted = "mark that a history is made, then make it: whoever looks in between notes the mark"

    def make(self) -> None:
        MADE.latest = object()
        self.variable._histories.setdefault(2, History(2))


class RestAndCopy(Model):
    """A superseded combiner copies a history that the next combiner finds at rest."""

    block = "histories.let_rest"

    def __init__(self) -> None:
        self.variable = cs.Var("x")
        # This finished read has no later op behind it.
        history_of(self.variable, 1).readers.append(object())  # type: ignore[arg-type]

    def workers(self) -> Workers:
        return [lambda: history_of(self.variable, 2), self.rest]

    def rest(self) -> None:
        history_of(self.variable, 3).readers.clear()
        self.forget()

    def forget(self) -> None:
        let_rest(self.variable, 3)

    def holds(self) -> bool:
        return not history_of(self.variable, 4).readers


class RestThatLeavesNoMark(RestAndCopy):
    planted = "forget it, and say nothing: the older copy counts again"

    def forget(self) -> None:
        self.variable._histories.pop(3, None)
