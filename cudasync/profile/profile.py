"""The tower. `with cs.profile() as p:` and the results of a profile."""

from __future__ import annotations

import json
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudasync.array.memory.free_lists import HANDING_ON
from cudasync.driver.ownership.unpicklable import unpicklable
from cudasync.engine import observation
from cudasync.engine.hazards.interval_map import Region
from cudasync.engine.hazards.variable import Var
from cudasync.engine.lifecycle import fork_and_exit
from cudasync.engine.log.combiner import COMBINER
from cudasync.profile import (
    analysis,
    annotation,
    dependencies,
    page,
    perfetto,
    picture,
    text,
    wait_reasons,
)
from cudasync.profile.annotation import LISTENERS, Heard
from cudasync.profile.record_builder import Book
from cudasync.profile.recorder import Recorder

if TYPE_CHECKING:
    from types import TracebackType

    from cudasync.array import Array
    from cudasync.engine import Engine, Op
    from cudasync.profile.record import Record
    from cudasync.profile.wait_reasons import Reason


@unpicklable("save() it, and send the file")
class Profile:
    """The ops that ran inside a `with` block, on any engine and from any thread: where and when.

    Entering and leaving wait for all ops of all engines, so an op is seen whole or not at all.
    Times are in microseconds. Host ops have wall clock times, from the start of the block. So have
    device ops, if the device's clock runs evenly with the wall clock (within `error_us`). The
    software GPU has a virtual clock, one for all its devices, which is shown separately.
    """

    def __init__(self, *, nodes: bool = False) -> None:
        self._times_nodes = nodes
        self._recorders: dict[Engine, Recorder] = {}
        self._book = Book()
        self._heard = Heard()
        self._is_over = False

    def __enter__(self) -> Profile:
        if self._book.wall:
            raise ValueError("a profile covers one block: make another with cs.profile()")
        self._book.wall = time.perf_counter()
        LISTENERS.append(self._heard)
        fork_and_exit.openings.append(self._watch)
        for engine in observation.every_engine():
            self._watch(engine)
        COMBINER.log.tell(self._book.noting)
        HANDING_ON.append(self._book.hand_on)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        HANDING_ON.remove(self._book.hand_on)
        fork_and_exit.openings.remove(self._watch)
        LISTENERS.remove(self._heard)
        COMBINER.log.tell_no_more(self._book.noting)
        try:
            for engine, recorder in self._recorders.items():
                observation.release(engine, recorder.outer)
            self._book.close()
        finally:
            # The profile keeps no engine alive.
            self._recorders = {}
            self._is_over = True

    @cached_property
    def records(self) -> list[Record]:
        """A record for each op that was pushed inside, in the order of pushes, with its
        dependencies. Raises ValueError inside the block."""
        if not self._is_over:
            raise ValueError("the profile is incomplete inside its block: ask after the block")
        found = self._book.records()
        dependencies.find(found, self._book.handed_on)
        return found

    @cached_property
    def annotations(self) -> list[Record]:
        """A record for each block of `cs.annotate` that was entered and left inside, in the order
        of their starts. Each thread has a track, and further tracks for nested blocks. Raises
        ValueError inside the block."""
        if not self._is_over:
            raise ValueError("the profile is incomplete inside its block: ask after the block")
        return annotation.records(self._heard.spans, self._book.wall)

    @property
    def _shown(self) -> list[Record]:
        return [*self.records, *self.annotations]

    @property
    def error_us(self) -> float:
        """The largest error of a device's time on the wall clock; 0 if no device is shown on it."""
        return max((clock.error_us for clock in self._book.clocks.values()), default=0.0)

    def why(self, op: Op | Record | Array | Var | str) -> Why:
        """Why an op started when it did: a chain of reasons back to a push.

        Give the op, or the name of ops, an array or a variable: then it is the last op of that
        name, or that wrote the array or variable. Its text has at most ten lines; the list has all
        reasons. Raises ValueError if no such op was pushed inside the block, TypeError for other
        objects.
        """
        return Why(wait_reasons.chain(self._record_of(op), self._blockers))

    def _record_of(self, what: Any) -> Record:
        if isinstance(what, str):
            found = [each for each in self.records if each.name == what]
            said = f"of the name {what!r}"
        elif hasattr(what, "number"):
            if what.number not in self._by_number:
                raise ValueError(f"op {what.name!r} was not pushed in the block of this profile")
            return self._by_number[what.number]
        else:
            wanted = what if isinstance(what, Var) else getattr(what, "region", None)
            if wanted is None:
                raise TypeError(
                    "why takes an op, the name of ops, an array or a variable, not "
                    f"{type(what).__name__}"
                )
            found = [each for each in self.records if any(_meet(wanted, w) for w in each.writes)]
            said = f"that writes this {type(what).__name__}"
        if not found:
            names = list(dict.fromkeys(each.name for each in self.records))
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            raise ValueError(
                f"the block of this profile pushed no op {said}, but "
                f"{', '.join(names[:5]) or 'none at all'}{more}"
            )
        return found[-1]

    @cached_property
    def _by_number(self) -> dict[int, Record]:
        return {record.number: record for record in self.records}

    @cached_property
    def _blockers(self) -> dict[Record, Record]:
        return wait_reasons.blockers(self.records)

    def save(self, file: str | Path) -> None:
        """Write a trace for https://ui.perfetto.dev and chrome://tracing."""
        Path(file).write_text(json.dumps(perfetto.trace(self._shown)), encoding="utf-8")

    def html(self, file: str | Path) -> None:
        """Write a page for any browser, which loads nothing else: tracks to zoom and move, a
        search, and for each op the reason for its wait, as from `why`."""
        Path(file).write_text(page.page(self._shown, str(self)), encoding="utf-8")

    def plot(self, file: str | Path) -> None:
        """Write a picture by matplotlib, in the format of the name's ending: a row for each stream
        and worker. Without matplotlib, ModuleNotFoundError says what to install."""
        picture.draw(self._shown, file)

    @property
    def rows(self) -> list[analysis.Row]:
        """The table by op."""
        return analysis.rows(self.records)

    @property
    def nodes(self) -> list[analysis.NodeRow]:
        """The nodes of graphs; device nodes only with `cs.profile(nodes=True)`."""
        return analysis.node_rows(self.records)

    @property
    def axes(self) -> list[analysis.Axis]:
        """For each clock: elapsed and busy time, overlap, and the critical path."""
        return analysis.axes(self.records)

    @property
    def places(self) -> list[analysis.Place]:
        """For each stream and worker: how long it was idle, and why."""
        return analysis.places(self.records)

    @property
    def moved(self) -> list[analysis.Moved]:
        """For each kind of copy: bytes, time, and the time that was hidden behind compute."""
        return analysis.moved(self.records)

    def __str__(self) -> str:
        if not self._is_over:
            return repr(self)
        notes = [
            f"device {ordinal}: tied to the wall clock within {clock.error_us:.1f} us,"
            f" drift {clock.drift * 1e6:.0f} in a million"
            for ordinal, clock in sorted(self._book.clocks.items())
            if not clock.is_virtual
        ]
        return text.text(self.records, notes, self.annotations)

    def __repr__(self) -> str:
        return f"<Profile of {len(self.records)} ops>" if self._is_over else "<Profile under way>"

    def _watch(self, engine: Engine) -> None:
        ledger: Any = engine._ledger
        recorder = Recorder(self._book, ledger.recorder, times_nodes=self._times_nodes)
        self._recorders[engine] = recorder
        observation.observe(engine, recorder, is_slow=self._times_nodes)
        if engine._serial is None:
            issuer: Any = engine._issuer
            for device in list(issuer.devices.values()):
                if device.device.ordinal not in self._book.clocks and device.fault is None:
                    self._book.join(device.device)


class Why(list["Reason"]):
    """Reasons, that of the given op first; as text, a line for each of the first ten."""

    _MOST_LINES = 10

    def __str__(self) -> str:
        lines = [str(each) for each in self[: self._MOST_LINES]]
        if len(self) > self._MOST_LINES:
            lines[-1] = f"and {len(self) - self._MOST_LINES + 1} more: the list has them"
        return "\n".join(lines)


def _meet(one: Region | Var, other: Region | Var) -> bool:
    """Whether they are the same variable, or have bytes in common."""
    if isinstance(one, Region) and isinstance(other, Region):
        return one.start < other.end and other.start < one.end
    return one is other


def profile(*, nodes: bool = False) -> Profile:
    """Watch the ops inside a `with` block: `with cs.profile() as p: ...`, then `print(p)`.

    A profile watches every engine and thread of the process, also engines made inside. Entering and
    leaving the block wait for all ops; outside of it nothing is paid.

    Host functions in graphs have a time each. With `nodes`, so have device nodes. A launch of a
    graph then has two events for each node, which takes longer, and calls a function of a stream
    once more. (In checked mode, and on a serial engine, device nodes have no times.)
    """
    return Profile(nodes=nodes)
