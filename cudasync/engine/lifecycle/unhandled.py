"""Floor 2. The failures of one engine, and the report of the unhandled ones.

Only the engine refers to them: a cause refers to its traceback, the traceback to frames, and the
frames mostly to the engine. If the engine's threads referred to them, a dropped engine would live.

A failure is kept as long as it may be needed. That is for good if nobody was told of it, since its
report is due, and if it is the first one, which `waitall` raises. Any other failure poisons data
and ops, and these keep it: it goes when its data is healed or gone. So a server that handles its
failures does not grow.
"""

from __future__ import annotations

import sys
import traceback
import warnings
import weakref
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from cudasync.atomic import Tickets
from cudasync.engine.frames import of_program
from cudasync.errors import UnhandledFailureWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cudasync.engine.failure import Failure
    from cudasync.engine.op import Op

# The number of reported failures of this process, whatever the warnings filter did.
REPORTED = Tickets()
# An engine first looks for failures that it need not keep at this number.
SWEEP = 32


class Failures:
    """The uncleared failures of one engine; reports unhandled ones when the engine ends."""

    def __init__(self) -> None:
        # Failures that are kept, and perhaps some that need not be. A dict, since each poisoned op
        # adds its failure again. True if the failure began in an op of this engine.
        self._known: dict[Failure, bool] = {}
        # The other living failures, by `id`, which nothing else has while the failure lives.
        self._told: dict[int, tuple[weakref.ref[Failure], bool]] = {}
        self._sweep_at = SWEEP

    def note(self, failure: Failure, op: Op) -> None:
        """`op` has failed with `failure`, its own or another's."""
        if op.number == failure.op_number:
            self._known[failure] = True
        else:
            if id(failure) not in self._told:
                self._known.setdefault(failure, False)
            failure.dependents.next()
        if len(self._known) >= self._sweep_at:
            self._sweep()

    def all(self) -> list[Failure]:
        """The uncleared failures, handled or not, that still matter to anybody."""
        return [failure for failure, _ in self._all()]

    def first(self) -> Failure | None:
        """The uncleared failure of the op that was pushed first."""
        left = [failure for failure in list(self._known) if not failure.cleared]
        return min(left, key=_number, default=None)

    def clear(self) -> None:
        """Forget all failures; they count as handled."""
        for failure, _ in self._all():
            failure.cleared = True
            failure.handle()
            failure.let_go()
            self._known.pop(failure, None)
            self._told.pop(id(failure), None)

    def end(self) -> None:
        """The engine has ended: report unhandled failures, and drop the frames of all."""
        try:
            report(self.take())
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Drop the frames of failures that began here. Other failures belong to other engines."""
        for failure, is_own in self._all():
            if is_own:
                failure.let_go()

    def disown(self) -> None:
        """In a forked child: the parent reports the failures."""
        for failure in list(self._known):
            failure.handle()

    def take(self) -> list[Failure]:
        """The unhandled failures, the oldest first; the caller must report them."""
        left = [each for each in list(self._known) if not each.cleared and each.handle()]
        return sorted(left, key=_number)

    def _all(self) -> list[tuple[Failure, bool]]:
        """The living failures, each with whether it began here."""
        found = {failure: self._known.get(failure, False) for failure in list(self._known)}
        for ref, is_own in list(self._told.values()):
            failure = ref()
            if failure is not None:
                found.setdefault(failure, is_own)
        return list(found.items())

    def _sweep(self) -> None:
        """Let go of the failures that somebody was told of, but for the first of these."""
        known = list(self._known)
        told = [failure for failure in known if failure.is_handled and not failure.cleared]
        first = min(told, key=_number, default=None)
        for failure in known:
            if failure.cleared or (failure.is_handled and failure is not first):
                key, is_own = id(failure), self._known.get(failure, False)
                # Before it leaves the other: a failure that is in neither could not be cleared.
                forget = partial(_forget, self._told, key)
                self._told[key] = weakref.ref(failure, forget), is_own
                self._known.pop(failure, None)
                if is_own:
                    # The frames may refer to the data that the failure poisons: it would never go.
                    failure.let_go()
        # Twice the rest: each failure then pays for a few looks.
        self._sweep_at = max(SWEEP, 2 * len(self._known))

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # The engine is collected, or was closed and has no failure left. Engines that the
        # interpreter destroys at its end were closed before, and cannot report any more.
        # `_known` may be missing, if Ctrl-C came before it was set.
        if getattr(self, "_known", None) and not is_finalizing():
            self.end()


def _forget(told: dict[int, tuple[weakref.ref[Failure], bool]], key: int, _: object) -> None:
    told.pop(key, None)


def report(failures: Iterable[Failure]) -> None:
    """Warn of each failure once; equal failures of one push site count as one.

    If a filter turns these warnings into errors, the first is raised, and the others are its notes.
    """
    alike: dict[tuple[str, str, str], Failure] = {}
    count: Counter[tuple[str, str, str]] = Counter()
    for failure in sorted(failures, key=_number):
        REPORTED.next()
        shown = failure.error()
        kind = type(failure.cause)
        key = str(shown), kind.__module__, kind.__qualname__
        alike.setdefault(key, failure)
        count[key] += 1
    raised: UnhandledFailureWarning | None = None
    for key, failure in alike.items():
        warning = UnhandledFailureWarning(
            failure.op_name,
            failure.push_site,
            failure.cause,
            suspects=failure.suspects,
            dependents=failure.dependents.taken,
            alike=count[key] - 1,
            trace=_trace(failure.cause),
        )
        file, _, line = failure.push_site.rpartition(":")
        try:
            # At the push, so that filters match the pushing module. Without a registry, so that
            # later failures of this place are reported, too.
            warnings.warn_explicit(warning, UnhandledFailureWarning, file, int(line))
        except UnhandledFailureWarning as error:
            if raised is None:
                raised = error
            else:
                raised.add_note(str(error))
    if raised is not None:
        raise raised


def disown() -> None:
    """In a forked child: reset the number of reported failures."""
    REPORTED.__init__()  # type: ignore[misc]


def _trace(cause: BaseException) -> str:
    """The traceback of `cause` from the first frame of the program; "" if there is none."""
    trace = of_program(cause.__traceback__)
    if trace is None:
        return ""
    return "".join(traceback.format_exception(type(cause), cause, trace)).rstrip()


def _number(failure: Failure) -> int:
    return failure.op_number
